package connection

import "go.yaml.in/yaml/v3"

func (c *rawKubeconfig) readUser(n *yaml.Node) (x rawUser) {
	x.names = userNames{
		token: "token", tokenFile: "tokenFile", certFile: "client-certificate", certData: "client-certificate-data",
		keyFile: "client-key", keyData: "client-key-data", basic: "username", exec: "exec",
	}
	x.readEntry(n, "users", "user", func(key string, k, v *yaml.Node) {
		switch key {
		case "as", "as-uid", "as-groups", "as-user-extra":
			x.readImpersonation(key, v)
			return
		case "extensions": // of others
			return
		case "auth-provider":
			if !isNull(v) {
				x.authProvider = key
			}
			return
		case "exec":
			if !isNull(v) {
				x.mentions = true
				x.exec = x.readExec(v)
				x.exec.command = resolveCommand(x.exec.command, c.options.Dir)
			}
			return
		}
		switch key {
		case "token":
			x.token = x.text(key, v)
		case "tokenFile":
			x.tokenFile = x.text(key, v)
		case "client-certificate":
			x.certFile = x.text(key, v)
		case "client-certificate-data":
			x.certData = encoded{text: x.text(key, v), base64: true, line: v.Line}
		case "client-key":
			x.keyFile = x.text(key, v)
		case "client-key-data":
			x.keyData = encoded{text: x.text(key, v), base64: true, line: v.Line}
		case "username":
			x.username = x.text(key, v)
		case "password":
			x.password = x.text(key, v)
		default:
			x.unknown("", k, v)
			return
		}
		x.mentions = true
	})
	return x
}

func (x *rawUser) readExec(n *yaml.Node) *rawExec {
	exec := new(rawExec)
	x.each("exec", n, func(key string, k, v *yaml.Node) {
		field := "exec." + key
		switch key {
		case "command":
			exec.command = x.text(field, v)
		case "args":
			exec.args = x.texts(field, v)
		case "env":
			x.elements(field, v, func(element *yaml.Node) { exec.env = append(exec.env, x.readEnvVar(element)) })
		case "apiVersion":
			exec.apiVersion = x.text(field, v)
		case "provideClusterInfo":
			exec.provideClusterInfo = x.boolean(field, v)
		case "interactiveMode":
			exec.interactiveMode = x.text(field, v)
		case "installHint": // for people at a terminal
		default:
			x.unknown("exec.", k, v)
		}
	})
	return exec
}

func (x *rawUser) readEnvVar(n *yaml.Node) (v EnvVar) {
	x.each("exec.env", n, func(key string, k, value *yaml.Node) {
		switch key {
		case "name":
			v.Name = x.text("exec.env", value)
		case "value":
			v.Value = NewSecret(x.text("exec.env", value))
		default:
			x.unknown("exec.env.", k, value)
		}
	})
	return v
}

// readImpersonation reads one of the fields of impersonation. That a field is there and empty is noted:
// templates leave such fields behind, and acting as oneself is not what they meant (CVE-2026-23990).
func (x *rawUser) readImpersonation(key string, v *yaml.Node) {
	x.impersonates = true
	some := func(values ...string) {
		empty := len(values) == 0
		for _, value := range values {
			empty = empty || value == ""
		}
		x.emptyImpersonation = x.emptyImpersonation || empty
	}
	switch key {
	case "as":
		x.impersonate.UserName = x.text(key, v)
		some(x.impersonate.UserName)
	case "as-uid":
		x.impersonate.UID = x.text(key, v)
		some(x.impersonate.UID)
	case "as-groups":
		x.impersonate.Groups = x.texts(key, v)
		some(x.impersonate.Groups...)
	case "as-user-extra":
		x.impersonate.Extra = make(map[string][]string)
		x.each(key, v, func(extra string, _, values *yaml.Node) {
			x.impersonate.Extra[extra] = x.texts(key, values)
			some(extra)
			some(x.impersonate.Extra[extra]...)
		})
		if len(x.impersonate.Extra) == 0 {
			some()
		}
	}
}
