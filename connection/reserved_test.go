package connection

import "testing"

func TestReservedVariables(t *testing.T) {
	for name, want := range map[string]bool{
		"PATH": true, "path": true, "HOME": true, "LD_PRELOAD": true, "ld_audit": true, "DYLD_INSERT_LIBRARIES": true, "BASH_ENV": true,
		"BASH_FUNC_ls%%": true, "PYTHONPATH": true, "PYTHONWARNINGS": true, "NODE_OPTIONS": true, "SSL_CERT_FILE": true,
		"KUBERNETES_SERVICE_HOST": true, "KUBERNETES_EXEC_INFO": true,
		"": false, "AWS_PROFILE": false, "REGION": false, "HTTPS_PROXY": false, "PATHS": false, "OLD_": false,
	} {
		if got := ReservedVariable(name); got != want {
			t.Errorf("%q is reserved: %t, want %t", name, got, want)
		}
	}
}
