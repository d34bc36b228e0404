package connection

import "strings"

// execInfoVariable hands the request to a plugin (KEP-541).
const execInfoVariable = "KUBERNETES_EXEC_INFO"

// ReservedVariable reports whether nobody but the operator may set an environment variable for a credential plugin: it
// decides which code is run (by the dynamic linker, a shell or an interpreter), whom the plugin trusts, where it looks
// for its credentials, or which hub it talks to. An allowed command would be no limit if these could be set.
// KUBERNETES_EXEC_INFO, which is the request to the plugin, is reserved for that. Names are compared without regard to case, as Windows does.
func ReservedVariable(name string) bool {
	name = strings.ToUpper(name)
	switch name {
	case execInfoVariable,
		"PATH", "PATHEXT", "HOME", "USERPROFILE", "SYSTEMROOT", "COMSPEC",
		"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "SHELL",
		"PERL5LIB", "PERL5OPT", "PERL5DB", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH",
		"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS",
		"GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES", "GODEBUG", "GOTRACEBACK",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
		"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT":
		return true
	}
	for _, prefix := range []string{"LD_", "DYLD_", "PYTHON", "BASH_FUNC_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
