package main

import (
	"bytes"
	"strings"
)

// tailBytes bounds the text that a tail keeps of one piece; it keeps twice as much at most.
const tailBytes = 8 << 10

// tail keeps the end of a text of any origin that arrives in pieces, such as the output of
// a running command, and counts its lines. The zero value is empty.
type tail struct {
	text []byte
	// breaks counts the line breaks.
	breaks int
}

// add adds a piece.
func (t *tail) add(text string) {
	t.breaks += strings.Count(text, "\n")
	t.text = append(t.text, text[max(len(text)-tailBytes, 0):]...)
	if len(t.text) <= 2*tailBytes && len(text) <= tailBytes {
		return
	}
	// A control sequence ends with its line at the latest, so a new line starts with text.
	kept := t.text[max(len(t.text)-tailBytes, 0):]
	kept = kept[bytes.IndexByte(kept, '\n')+1:]
	t.text = append(t.text[:0], kept...)
}

// lines returns the number of lines.
func (t *tail) lines() int {
	last := t.text[bytes.LastIndexByte(t.text, '\n')+1:]
	if sanitize(string(last)) == "" {
		return t.breaks
	}
	return t.breaks + 1
}

// rows returns the last rows, at most n of the given width.
func (t *tail) rows(width, n int) []string {
	rows := textRows(string(t.text), width)
	if len(rows) == 1 && rows[0] == "" {
		return nil
	}
	return lastOf(rows, n)
}

func lastOf(rows []string, n int) []string { return rows[max(len(rows)-n, 0):] }
