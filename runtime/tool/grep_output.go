package tool

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/search"
)

// grepOutput writes what a search finds.
type grepOutput struct {
	out *bufio.Writer
	// numbers says that lines have their numbers.
	numbers bool
	// offset is how many results are left out before the first that is written.
	offset int
	// groups says that a line marks where lines do not follow each other.
	groups bool
	// before is how many lines before a match are written.
	before int

	// results is how many there were, with those left out.
	results int
	// held are the last lines before the first result that is written. As many as there are of its
	// file belong in front of it.
	held []search.GrepMatch
	// file and line are those of the line written last.
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

// write writes a line, a file or a count. Flush of out tells the error.
func (g *grepOutput) write(m search.GrepMatch) {
	if g.groups && g.file != "" && (m.Name != g.file || m.Line != g.line+1) {
		_, _ = g.out.WriteString("--\n")
	}
	g.file, g.line = m.Name, m.Line
	name, sep, cut := oneLine(m.Name), ":", ""
	if m.Context {
		sep = "-"
	}
	if m.LineCut {
		cut = " [line cut]"
	}
	switch {
	case m.Count > 0:
		_, _ = fmt.Fprintf(g.out, "%s:%d\n", name, m.Count)
	case m.Line == 0:
		_, _ = fmt.Fprintf(g.out, "%s\n", name)
	case g.numbers:
		_, _ = fmt.Fprintf(g.out, "%s%s%d%s%s%s\n", name, sep, m.Line, sep, m.Text, cut)
	default:
		_, _ = fmt.Fprintf(g.out, "%s%s%s%s\n", name, sep, m.Text, cut)
	}
}

// oneLine is a file name that stays on its line: one with control characters is quoted.
func oneLine(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}
