package connection

import (
	"strings"
	"testing"
)

func TestNestingIsBounded(t *testing.T) {
	deeper := func(n int, begin string) string { return "a:\n" + strings.Repeat(begin, n) + "x\n" }
	var lines, wide strings.Builder
	for i := range 100 {
		lines.WriteString(strings.Repeat(" ", i) + "k:\n")
		wide.WriteString("l" + strings.Repeat("x", i) + ":\n  - - a\n  # b\n")
	}
	for name, test := range map[string]struct {
		data string
		deep bool
	}{
		"a kubeconfig":             {kubeconfig(secureCluster(), "token: abc"), false},
		"several contexts":         {severalContexts, false},
		"many and flat":            {wide.String(), false},
		"text with dashes":         {"a: " + strings.Repeat("- ", 1000), false},
		"as deep as allowed":       {deeper(mostNested-1, "- "), false},
		"one deeper":               {deeper(mostNested, "- "), true},
		"with tabs":                {deeper(mostNested, "-\t"), true},
		"of keys":                  {deeper(mostNested, "? "), true},
		"of values":                {deeper(mostNested, ": "), true},
		"line by line":             {lines.String(), true},
		"behind a line separator":  {"a:\u2028" + strings.Repeat("- ", mostNested) + "x", true},
		"behind a next line":       {"a:\u0085" + strings.Repeat("- ", mostNested) + "x", true},
		"behind a carriage return": {"a:\r" + strings.Repeat("- ", mostNested) + "x", true},
		"in a second document":     {"a: b\n---\n" + deeper(mostNested, "- "), true},
	} {
		if _, deep := nestedTooDeep([]byte(test.data)); deep != test.deep {
			t.Errorf("%s: too deep %t, want %t", name, deep, test.deep)
		}
	}
}

func TestDeepDataIsRefused(t *testing.T) {
	// The parser reads UTF-16, too, in which nothing above would be seen.
	wide := "\xff\xfe" + strings.Join(strings.Split("a:\n"+strings.Repeat("- ", 1000)+"x", ""), "\x00") + "\x00"
	for name, test := range map[string]struct{ data, want string }{
		"deep":   {"a:\n" + strings.Repeat("- ", 1000) + "x", ": is nested too deeply"},
		"UTF-16": {wide, ": is neither YAML nor JSON"},
	} {
		_, err := parseDocument("kubeconfig", []byte(test.data))
		if got := reasons(t, err); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
