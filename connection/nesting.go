package connection

import "bytes"

// mostNested is how deep blocks of YAML may be nested. Kubeconfigs need less than ten levels.
const mostNested = 64

// nestedTooDeep looks, in one pass, for blocks that are nested deeper than mostNested, and returns the line of the first.
// The YAML parser works on every open block at every comment and every change of indentation, so that deeply nested data
// of a permitted size could keep it busy. It may count text in quotes and literals as blocks, never the other way round.
func nestedTooDeep(data []byte) (line int, deep bool) {
	var open [mostNested]int // columns at which blocks begin
	depth := 0
	for len(data) > 0 {
		var text []byte
		text, data = cutLine(data)
		line++
		column := 0
		for column < len(text) && text[column] == ' ' {
			column++
		}
		if column == len(text) || text[column] == '#' {
			continue // it closes nothing
		}
		for depth > 0 && open[depth-1] >= column {
			depth--
		}
		for begins := true; begins; { // "- - x" is one block within another, and x may be a key
			if depth == mostNested {
				return line, true
			}
			open[depth] = column
			depth++
			if begins = indicates(text[column:]); begins {
				column++
				for column < len(text) && (text[column] == ' ' || text[column] == '\t') {
					column++
				}
				begins = column < len(text)
			}
		}
	}
	return 0, false
}

// indicates reports whether text begins with the indicator of a block.
func indicates(text []byte) bool {
	return (text[0] == '-' || text[0] == '?' || text[0] == ':') && (len(text) == 1 || text[1] == ' ' || text[1] == '\t')
}

// cutLine returns the first line and what follows it. YAML 1.1, which the parser reads, has more line breaks than others.
func cutLine(data []byte) (line, rest []byte) {
	for i, c := range data {
		switch {
		case c == '\n':
			return data[:i], data[i+1:]
		case c == '\r':
			return data[:i], bytes.TrimPrefix(data[i+1:], []byte("\n"))
		case c == 0xc2 && bytes.HasPrefix(data[i:], []byte("\u0085")):
			return data[:i], data[i+2:]
		case c == 0xe2 && (bytes.HasPrefix(data[i:], []byte("\u2028")) || bytes.HasPrefix(data[i:], []byte("\u2029"))):
			return data[:i], data[i+3:]
		}
	}
	return data, nil
}
