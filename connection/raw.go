package connection

import "iter"

// rawCluster is a cluster entry as some inventory writes it, before policy and before it is understood.
type rawCluster struct {
	entry
	names clusterNames

	server, proxy      address
	hasProxy           bool
	caFile             string
	caData             encoded
	tlsServerName      string
	insecure           bool
	disableCompression bool
	execConfig         string // JSON
	built              built[Endpoint]
}

// clusterNames are the names of the fields of a cluster entry.
type clusterNames struct {
	server, proxy, caFile, caData, tlsServerName, insecure string
}

// rawUser is a user entry as some inventory writes it.
type rawUser struct {
	entry
	names userNames

	token, tokenFile   string
	certFile, keyFile  string
	certData, keyData  encoded
	username, password string
	exec               *rawExec
	authProvider       string // the name of the field, if it is there
	impersonate        Impersonation
	impersonates       bool // a field of impersonation is there, empty or not
	emptyImpersonation bool // … and one of them is empty
	mentions           bool // a field that could hold a credential is there
	built              built[Auth]
}

// userNames are the names of the fields of a user entry.
type userNames struct {
	token, tokenFile, certFile, certData, keyFile, keyData, basic, exec string
	any                                                                 string // what to name where a credential of whatever kind is missing
}

// rawExec is a credential plugin as some inventory writes it.
type rawExec struct {
	command, apiVersion, interactiveMode string
	args                                 []string
	env                                  []EnvVar
	provideClusterInfo                   bool
	configured                           bool // the operator configured it
}

// encoded is data in PEM, perhaps in base64.
type encoded struct {
	text   string
	base64 bool
	line   int
}

// files are the fields of a user that refer to files.
func (u *rawUser) files() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		_ = yield(u.names.tokenFile, u.tokenFile) &&
			yield(u.names.certFile, u.certFile) &&
			yield(u.names.keyFile, u.keyFile)
	}
}
