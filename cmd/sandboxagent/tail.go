package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// tailBytes bounds the text that a tail keeps, and what it reads of one piece.
const tailBytes = 8 << 10

// tail keeps the end of a text of any origin that arrives in pieces, such as the output of
// a running command, and counts its lines. The zero value is empty.
type tail struct {
	clean *tool.Sanitizer
	text  []byte
	// breaks counts the line breaks.
	breaks int
}

// add adds a piece. Of a long one it only counts the lines at the start.
func (t *tail) add(text string) {
	skipped := max(len(text)-tailBytes, 0)
	t.breaks += strings.Count(text[:skipped], "\n")
	if t.clean == nil || skipped > 0 {
		t.clean = tool.NewSanitizer(t)
	}
	_, _ = io.WriteString(t.clean, text[skipped:]) // it does not fail
}

// Write adds a text without control sequences.
func (t *tail) Write(b []byte) (int, error) {
	t.breaks += bytes.Count(b, []byte("\n"))
	t.text = append(t.text, b...)
	if len(t.text) > 2*tailBytes {
		t.text = append(t.text[:0], t.text[len(t.text)-tailBytes:]...)
	}
	return len(b), nil
}

// lines returns the number of lines.
func (t *tail) lines() int {
	if n := len(t.text); n > 0 && t.text[n-1] != '\n' {
		return t.breaks + 1
	}
	return t.breaks
}

// rows returns the last rows, at most n of the given width.
func (t *tail) rows(width, n int) []string {
	if len(bytes.TrimSpace(t.text)) == 0 {
		return nil
	}
	return lastOf(textRows(string(t.text), width), n)
}

func lastOf(rows []string, n int) []string { return rows[max(len(rows)-n, 0):] }
