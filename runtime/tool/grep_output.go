package tool

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/policy/redact"
)

// grepOutput writes the results of a search.
type grepOutput struct {
	out *bufio.Writer
	// redactor replaces secrets before lines are cut.
	redactor *redact.Redactor
	// numbers reports whether lines have numbers.
	numbers bool
	// offset is the number of results that are left out before the first that is written.
	offset int
	// groups reports whether "--" separates lines that are not adjacent.
	groups bool
	// before is the number of lines that are written before a match.
	before int

	// results counts all results, with those left out.
	results int
	// held are the last lines before the first result that is written. Those of its file are written
	// before it.
	held []search.GrepMatch
	// file and line identify the line written last.
	file string
	line int
}

func (g *grepOutput) match(m search.GrepMatch) error {
	if !m.Context {
		g.results++
	}
	switch {
	case g.results <= g.offset:
		g.hold(m)
		return nil
	case !m.Context && g.results == g.offset+1:
		for _, held := range g.held {
			if held.Name == m.Name {
				g.write(held)
			}
		}
	}
	g.write(m)
	return nil
}

// hold keeps a line that may come before the first result that is written.
func (g *grepOutput) hold(m search.GrepMatch) {
	if g.before == 0 {
		return
	}
	if len(g.held) == g.before {
		g.held = append(g.held[:0], g.held[1:]...)
	}
	m.Context = true
	g.held = append(g.held, m)
}

// write writes a line, a file or a count. Flush of out returns the error.
func (g *grepOutput) write(m search.GrepMatch) {
	if g.groups && g.file != "" && (m.Name != g.file || m.Line != g.line+1) {
		_, _ = g.out.WriteString("--\n")
	}
	g.file, g.line = m.Name, m.Line
	name, sep, cut := oneLine(m.Name), ":", ""
	if m.Context {
		sep = "-"
	}
	text := g.redactor.Text(m.Text)
	if m.LineCut || len(text) > search.DefaultMaxLineBytes {
		text, cut = cutRunes(text, search.DefaultMaxLineBytes), " [line cut]"
	}
	switch {
	case m.Count > 0:
		_, _ = fmt.Fprintf(g.out, "%s:%d\n", name, m.Count)
	case m.Line == 0:
		_, _ = fmt.Fprintf(g.out, "%s\n", name)
	case g.numbers:
		_, _ = fmt.Fprintf(g.out, "%s%s%d%s%s%s\n", name, sep, m.Line, sep, text, cut)
	default:
		_, _ = fmt.Fprintf(g.out, "%s%s%s%s\n", name, sep, text, cut)
	}
}

// oneLine returns a file name for a line of output: quoted if it has control characters.
func oneLine(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}
