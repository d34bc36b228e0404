package connection

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// ordinary is a kubeconfig as kubeadm writes it.
func ordinary(tb testing.TB) []byte {
	id := kubeadm(tb)
	return []byte(kubeconfig(
		"server: https://prod.example.com:6443\ncertificate-authority-data: "+b64(id.cert),
		"client-certificate-data: "+b64(id.cert)+"\nclient-key-data: "+b64(id.key),
	))
}

func parseAndFingerprint(tb testing.TB, data []byte) {
	r, err := ParseKubeconfig(tb.Context(), data, KubeconfigOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	_, _ = r.Spec.EndpointFingerprint(), r.Spec.AuthFingerprint()
}

func load(tb testing.TB, data []byte) {
	if _, err := clientcmd.Load(data); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkParseKubeconfig(b *testing.B) {
	data := ordinary(b)
	b.ReportAllocs()
	for b.Loop() {
		parseAndFingerprint(b, data)
	}
}

func BenchmarkClientcmdLoad(b *testing.B) {
	data := ordinary(b)
	b.ReportAllocs()
	for b.Loop() {
		load(b, data)
	}
}

// BenchmarkParseAgainstClientcmd alternates between the two and reports the ratio of their medians, which the noise of a
// busy machine moves little. The aim is 1.5 at most.
func BenchmarkParseAgainstClientcmd(b *testing.B) {
	data := ordinary(b)
	var ours, theirs []time.Duration
	for b.Loop() {
		start := time.Now()
		parseAndFingerprint(b, data)
		middle := time.Now()
		load(b, data)
		ours, theirs = append(ours, middle.Sub(start)), append(theirs, time.Since(middle))
	}
	b.ReportMetric(float64(median(ours))/float64(median(theirs)), "parse/clientcmd.Load")
	b.ReportMetric(float64(median(ours).Nanoseconds()), "parse-ns")
	b.ReportMetric(float64(median(theirs).Nanoseconds()), "clientcmd.Load-ns")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkUnchangedSecret is what a Secret costs that did not change: nothing is parsed.
func BenchmarkUnchangedSecret(b *testing.B) {
	data := map[string][]byte{"kubeconfig": ordinary(b)}
	last := DigestOf(data)
	b.ReportAllocs()
	for b.Loop() {
		if DigestOf(data) != last {
			b.Fatal("changed")
		}
	}
}

func BenchmarkParseContexts(b *testing.B) {
	data := "current-context: c0\nclusters:\n"
	for i := range 100 {
		data += fmt.Sprintf("- {name: k%d, cluster: {server: 'https://k%d.example.com'}}\n", i, i)
	}
	data += "users:\n"
	for i := range 100 {
		data += fmt.Sprintf("- {name: u%d, user: {token: t%d}}\n", i, i)
	}
	data += "contexts:\n"
	for i := range 100 {
		data += fmt.Sprintf("- {name: c%d, context: {cluster: k%d, user: u%d}}\n", i, i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		results, err := ParseContexts(b.Context(), []byte(data), KubeconfigOptions{})
		if err != nil || len(results) != 100 || results[99].Err != nil {
			b.Fatal(len(results), err)
		}
	}
}
