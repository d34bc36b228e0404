package aggregate

import (
	"bytes"
	"encoding/json"
	"html/template"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tributary-fleet/tributary/backends"
)

// StatusHandler returns a handler that tells how the fleet is doing, as JSON or as a page for people. It is meant for the
// manager's metrics server, whose authentication and authorization it is then behind:
//
//	mgr, err := mcmanager.New(hub, fleet, mcmanager.Options{
//		Metrics: metricsserver.Options{
//			BindAddress:    ":8443",
//			SecureServing:  true,
//			FilterProvider: filters.WithAuthenticationAndAuthorization,
//			ExtraHandlers:  map[string]http.Handler{"/fleet": fleet.StatusHandler()},
//		},
//	})
//
// It answers GET and HEAD. The answer is a page if the Accept header prefers text/html to application/json, else JSON;
// ?format=json or ?format=html decides before the header. ?state= and ?backend= choose clusters by their state and by the
// backends that list them; each may be given several times. The summary and the backends are always those of the whole fleet.
//
// The JSON is an object with the fields time, summary, backends (in their order of precedence) and clusters (by name), whose
// fields are those of [BackendStatus] and [ClusterStatus] with the first letter in lower case; times are RFC 3339. Fields may be
// added. Empty ones are left out, but for counts, lists, and each entry's name and state. What inventories tell about clusters
// (labels, annotations, properties) and who the provider is to them is not in it, and neither is anything secret.
//
// The handler may be used concurrently, before, while and after the provider runs. Nothing is to be cached.
func (p *Provider) StatusHandler() http.Handler {
	return &statusHandler{
		backends: p.Backends, clusters: p.Clusters,
		page: template.Must(template.New("fleet").Funcs(template.FuncMap{"rfc3339": rfc3339}).Parse(statusPage)),
	}
}

type statusHandler struct {
	backends func() []BackendStatus
	clusters func() []ClusterStatus
	page     *template.Template
}

// ServeHTTP implements http.Handler.
func (h *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are answered", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	page := false
	switch format := query.Get("format"); format {
	case "":
		header.Set("Vary", "Accept")
		accept := strings.Join(r.Header.Values("Accept"), ",")
		page = quality(accept, "text", "html") > quality(accept, "application", "json")
	case "html":
		page = true
	case "json":
	default:
		http.Error(w, "format is neither json nor html", http.StatusBadRequest)
		return
	}

	document := newFleetDocument(time.Now(), h.backends(), h.clusters(), selection{query["state"], query["backend"]})
	var body bytes.Buffer
	var err error
	if page {
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		header.Set("Referrer-Policy", "no-referrer")
		err = h.page.Execute(&body, document)
	} else {
		header.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(document)
	}
	if err != nil {
		http.Error(w, "the status cannot be shown", http.StatusInternalServerError)
		return
	}
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body.Bytes()) // the client has gone
	}
}

// quality returns how much a client accepts a media type, from 0 to 1 (RFC 9110, section 12.5.1): the most specific
// range that it names counts.
func quality(accept, major, minor string) float64 {
	best, most := 0.0, 0
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		specific := 0
		switch media {
		case major + "/" + minor:
			specific = 3
		case major + "/*":
			specific = 2
		case "*/*":
			specific = 1
		}
		if specific <= most {
			continue
		}
		q := 1.0
		if given, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(given, 64); err != nil {
				continue
			}
		}
		best, most = q, specific
	}
	return best
}

// selection is which clusters are asked for; nothing chosen means all.
type selection struct{ States, Backends []string }

func (s selection) has(c ClusterStatus) bool {
	if len(s.States) > 0 && !slices.Contains(s.States, string(c.State)) {
		return false
	}
	return len(s.Backends) == 0 || slices.Contains(s.Backends, c.Backend) ||
		slices.ContainsFunc(c.Candidates, func(o Candidate) bool { return slices.Contains(s.Backends, o.Backend) })
}

// fleetDocument is the status of a fleet as it is shown.
type fleetDocument struct {
	Time     time.Time         `json:"time"`
	Summary  summaryDocument   `json:"summary"`
	Backends []backendDocument `json:"backends"`
	Clusters []clusterDocument `json:"clusters"`

	// Selection is for the page, which shows what was asked for.
	Selection selection `json:"-"`
}

type summaryDocument struct {
	Clusters int `json:"clusters"`
	// States counts the clusters by state.
	States map[backends.State]int `json:"states"`
}

type backendDocument struct {
	Name    string          `json:"name"`
	Prefix  string          `json:"prefix,omitempty"`
	Health  *healthDocument `json:"health,omitempty"` // nil: all is well
	Synced  bool            `json:"synced"`
	Members int             `json:"members"`
	// States counts the clusters that it serves, or would, by state.
	States map[backends.State]int `json:"states"`
}

type healthDocument struct {
	Reason  backends.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

type clusterDocument struct {
	Name        multicluster.ClusterName `json:"name"`
	Backend     string                   `json:"backend,omitempty"`
	Member      string                   `json:"member,omitempty"`
	State       backends.State           `json:"state"`
	Reason      backends.Reason          `json:"reason,omitempty"`
	Message     string                   `json:"message,omitempty"`
	Since       time.Time                `json:"since,omitzero"`
	Attempt     int                      `json:"attempt,omitempty"`
	NextTry     time.Time                `json:"nextTry,omitzero"`
	Version     string                   `json:"version,omitempty"`
	UID         string                   `json:"uid,omitempty"`
	DuplicateOf multicluster.ClusterName `json:"duplicateOf,omitempty"`
	Candidates  []candidateDocument      `json:"candidates,omitempty"`
	Source      string                   `json:"source,omitempty"`
}

type candidateDocument struct {
	Backend string          `json:"backend"`
	Member  string          `json:"member,omitempty"`
	State   backends.State  `json:"state"`
	Reason  backends.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	UID     string          `json:"uid,omitempty"`
	Proved  time.Time       `json:"proved,omitzero"`
}

func newFleetDocument(now time.Time, all []BackendStatus, clusters []ClusterStatus, selected selection) fleetDocument {
	d := fleetDocument{
		Time: shown(now), Selection: selected,
		Summary:  summaryDocument{Clusters: len(clusters), States: map[backends.State]int{}},
		Backends: make([]backendDocument, 0, len(all)), Clusters: []clusterDocument{},
	}
	states := map[string]map[backends.State]int{}
	for _, b := range all {
		states[b.Name] = map[backends.State]int{}
		entry := backendDocument{Name: b.Name, Prefix: b.Prefix, Synced: b.Synced, Members: b.Members, States: states[b.Name]}
		if b.Health != (backends.Health{}) {
			entry.Health = &healthDocument{b.Health.Reason, b.Health.Message}
		}
		d.Backends = append(d.Backends, entry)
	}
	for _, c := range clusters {
		d.Summary.States[c.State]++
		if of := states[c.Backend]; of != nil { // else it was removed a moment ago
			of[c.State]++
		}
		if selected.has(c) {
			d.Clusters = append(d.Clusters, newClusterDocument(c))
		}
	}
	return d
}

func newClusterDocument(c ClusterStatus) clusterDocument {
	d := clusterDocument{
		Name: c.Name, Backend: c.Backend, Member: c.Member, State: c.State, Reason: c.Reason, Message: c.Message,
		Since: shown(c.Since), Attempt: c.Attempt, NextTry: shown(c.NextTry),
		Version: c.Version, UID: c.UID, DuplicateOf: c.DuplicateOf, Source: c.Source.String(),
	}
	for _, o := range c.Candidates {
		d.Candidates = append(d.Candidates, candidateDocument{
			o.Backend, o.Member, o.State, o.Reason, o.Message, o.UID, shown(o.Proved),
		})
	}
	return d
}

// shown is a time as it is shown: in UTC, to the second.
func shown(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// rfc3339 is a time on the page; nothing for the zero time.
func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// statusPage is the page of a fleetDocument. html/template escapes whatever clusters and inventories say.
const statusPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Fleet</title>
<style>
body { font: 14px/1.4 sans-serif; margin: 2em; }
table { border-collapse: collapse; margin-bottom: 2em; }
th, td { border-bottom: 1px solid #ccc; padding: .3em .8em; text-align: left; vertical-align: top; }
small { color: #555; display: block; }
.Engaged { color: #060; } .Degraded { color: #850; } .Disconnected, .Rejected { color: #a00; }
</style>
</head>
<body>
<h1>Fleet</h1>
<p><a href="?format=html">{{.Summary.Clusters}} clusters</a>
{{- range $state, $count := .Summary.States}}, <a href="?format=html&amp;state={{$state}}">{{$count}} <span class="{{$state}}">{{$state}}</span></a>{{end}}
at {{rfc3339 .Time}}</p>

<h2>Backends</h2>
<table>
<tr><th>Name</th><th>Prefix</th><th>Health</th><th>Synced</th><th>Lists</th><th>Serves</th></tr>
{{range .Backends}}<tr>
<td><a href="?format=html&amp;backend={{.Name}}">{{.Name}}</a></td><td>{{.Prefix}}</td>
<td>{{with .Health}}{{.Reason}}<small>{{.Message}}</small>{{else}}well{{end}}</td>
<td>{{if .Synced}}yes{{else}}no{{end}}</td><td>{{.Members}}</td>
<td>{{$backend := .Name}}{{range $state, $count := .States}}<a href="?format=html&amp;backend={{$backend}}&amp;state={{$state}}">{{$count}} {{$state}}</a> {{end}}</td>
</tr>
{{end}}</table>

<h2>Clusters</h2>
{{with .Selection}}{{if or .States .Backends}}<p>Only{{range .States}} state {{.}}{{end}}{{range .Backends}} backend {{.}}{{end}}: <a href="?format=html">show all</a></p>
{{end}}{{end}}<table>
<tr><th>Name</th><th>Backend</th><th>State</th><th>Reason</th><th>Message</th><th>Since</th><th>Version</th><th>Next try</th></tr>
{{range .Clusters}}<tr>
<td>{{.Name}}{{with .DuplicateOf}}<small>the same cluster as {{.}}</small>{{end}}</td>
<td>{{.Backend}}{{range .Candidates}}<small>{{.Backend}}: {{.State}} {{.Reason}}</small>{{end}}</td>
<td class="{{.State}}">{{.State}}</td><td>{{.Reason}}</td><td>{{.Message}}</td>
<td>{{rfc3339 .Since}}</td><td>{{.Version}}</td>
<td>{{rfc3339 .NextTry}}{{with .Attempt}}<small>after {{.}} failed</small>{{end}}</td>
</tr>
{{end}}</table>
</body>
</html>
`
