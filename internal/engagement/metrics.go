package engagement

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tributary-fleet/tributary/backends"
	"github.com/tributary-fleet/tributary/connection"
)

// Metrics are what the engine measures. Labels are bounded: by the number of backends, of states and reasons, which
// are constants, and, for those with the label cluster, of clusters; a cluster's are removed with it.
type Metrics struct {
	clusters       *prometheus.GaugeVec
	connects       *prometheus.HistogramVec
	firstSyncs     *prometheus.HistogramVec
	probes         *prometheus.HistogramVec
	swaps          *prometheus.CounterVec
	replaces       *prometheus.CounterVec
	disengagements *prometheus.CounterVec
	lastContact    *prometheus.GaugeVec
	credentialEnds *prometheus.GaugeVec
	duplicates     prometheus.Gauge
}

// NewMetrics returns metrics that are registered with r. Engines that share a registry share the metrics. The
// error is r's.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	durations := []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &Metrics{}
	err := errors.Join(
		register(r, &m.clusters, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tributary_clusters", Help: "Clusters by the backend that lists them and their state.",
		}, []string{"backend", "state"})),
		register(r, &m.connects, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tributary_connect_duration_seconds", Help: "How long attempts to connect took, by backend and result (ok, or the reason of the failure).", Buckets: durations,
		}, []string{"backend", "result"})),
		register(r, &m.firstSyncs, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tributary_first_sync_duration_seconds", Help: "How long it took from engaging a cluster until its informers had synced once.", Buckets: durations,
		}, []string{"backend"})),
		register(r, &m.probes, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tributary_probe_duration_seconds", Help: "How long probes took, by backend and result (ok, or the reason of the failure).", Buckets: durations,
		}, []string{"backend", "result"})),
		register(r, &m.swaps, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_swaps_total", Help: "Connections put under a running cluster.",
		}, []string{"backend"})),
		register(r, &m.replaces, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_replaces_total", Help: "Clusters replaced by another one under their name.",
		}, []string{"backend"})),
		register(r, &m.disengagements, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_disengagements_total", Help: "Clusters disengaged, by reason.",
		}, []string{"backend", "reason"})),
		register(r, &m.lastContact, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tributary_last_contact_timestamp_seconds", Help: "When a cluster last answered a probe or an attempt to connect.",
		}, []string{"cluster"})),
		register(r, &m.credentialEnds, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tributary_credential_expiry_timestamp_seconds", Help: "When the credential in force expires; absent if it does not say.",
		}, []string{"cluster"})),
		register(r, &m.duplicates, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tributary_duplicate_clusters", Help: "Names that lead to a cluster that another name leads to as well.",
		})),
	)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// register registers a collector, or takes the one that is registered already under its name.
func register[C prometheus.Collector](r prometheus.Registerer, into *C, c C) error {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			*into = existing
			return nil
		}
	}
	*into = c
	return err
}

const resultOK = "ok"

func result(f *Failure) string {
	if f == nil {
		return resultOK
	}
	return string(f.Reason)
}

// connected takes note of an attempt's end.
func (m *Metrics) connected(name, backend string, took time.Duration, f *Failure) {
	if m == nil {
		return
	}
	m.connects.WithLabelValues(backend, result(f)).Observe(took.Seconds())
	if f == nil {
		m.lastContact.WithLabelValues(name).SetToCurrentTime()
	}
}

// probed takes note of a probe's end.
func (m *Metrics) probed(name, backend string, took time.Duration, f *Failure) {
	if m == nil {
		return
	}
	m.probes.WithLabelValues(backend, result(f)).Observe(took.Seconds())
	if f == nil {
		m.lastContact.WithLabelValues(name).SetToCurrentTime()
	}
}

// synced takes note of a first sync.
func (m *Metrics) synced(backend string, took time.Duration) {
	if m != nil {
		m.firstSyncs.WithLabelValues(backend).Observe(took.Seconds())
	}
}

// inForce takes note of the connection that a cluster now runs upon.
func (m *Metrics) inForce(name string, link Link, swapped bool) {
	if m == nil {
		return
	}
	if swapped {
		m.swaps.WithLabelValues(link.Source).Inc()
	}
	if at := expiry(link.Connection.Auth); at.IsZero() {
		m.credentialEnds.DeleteLabelValues(name)
	} else {
		m.credentialEnds.WithLabelValues(name).Set(float64(at.Unix()))
	}
}

// disengaged takes note of an engagement's end.
func (m *Metrics) disengaged(backend string, reason backends.Reason) {
	if m == nil {
		return
	}
	m.disengagements.WithLabelValues(backend, string(reason)).Inc()
	if reason == backends.ReasonReplaced {
		m.replaces.WithLabelValues(backend).Inc()
	}
}

// duplicated takes note that so many more names lead to clusters that others lead to as well.
func (m *Metrics) duplicated(more int) {
	if m != nil {
		m.duplicates.Add(float64(more))
	}
}

// moved takes note of a change of state. A zero Status is none.
func (m *Metrics) moved(from, to Status) {
	if m == nil || (from.Source == to.Source && from.State == to.State) {
		return
	}
	if from.State != "" {
		m.clusters.WithLabelValues(from.Source, string(from.State)).Dec()
	}
	if to.State != "" {
		m.clusters.WithLabelValues(to.Source, string(to.State)).Inc()
	}
}

// forgotten removes what is kept of a cluster.
func (m *Metrics) forgotten(name string, last Status) {
	if m == nil {
		return
	}
	m.moved(last, Status{})
	m.lastContact.DeleteLabelValues(name)
	m.credentialEnds.DeleteLabelValues(name)
}

// expiry returns when a credential expires: the earlier of its client certificate's end and its token's, if
// that is a JWT that says so. The zero time if neither says.
func expiry(a connection.Auth) (at time.Time) {
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if block, _ := pem.Decode(a.ClientCertificateData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			earlier(c.NotAfter)
		}
	}
	if parts := strings.Split(a.Token.Reveal(), "."); len(parts) == 3 {
		var claims struct {
			Expiry int64 `json:"exp"`
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err == nil && json.Unmarshal(payload, &claims) == nil && claims.Expiry > 0 {
			earlier(time.Unix(claims.Expiry, 0))
		}
	}
	return at
}
