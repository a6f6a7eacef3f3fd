package snapshot

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"

	"github.com/aymanbagabas/go-udiff/lcs"
)

const (
	// contextLines is the number of context lines around a change.
	contextLines = 3
	// maxAnchorDepth bounds how often a region is split at its unique lines.
	maxAnchorDepth = 16
)

// edit replaces lines [a0, a1) of the old text by lines [b0, b1) of the new one.
type edit struct{ a0, a1, b0, b1 int }

// writeHunks writes the hunks from one text to another and returns the numbers of inserted and
// deleted lines.
func writeHunks(w *bufio.Writer, old, now []byte) (insertions, deletions int) {
	a, b := splitLines(old), splitLines(now)
	edits := diffLines(a, b)
	for len(edits) > 0 {
		// A hunk includes the next edit if their contexts touch.
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*contextLines {
			n++
		}
		hunk := edits[:n]
		edits = edits[n:]

		first, last := hunk[0], hunk[n-1]
		before := min(contextLines, first.a0)
		after := min(contextLines, a.len()-last.a1)
		fmt.Fprintf(w, "@@ -%s +%s @@\n", hunkRange(first.a0-before, last.a1+after),
			hunkRange(first.b0-before, last.b1+after))
		at := first.a0 - before
		for _, e := range hunk {
			writeLines(w, ' ', a, at, e.a0)
			writeLines(w, '-', a, e.a0, e.a1)
			writeLines(w, '+', b, e.b0, e.b1)
			at = e.a1
			insertions += e.b1 - e.b0
			deletions += e.a1 - e.a0
		}
		writeLines(w, ' ', a, at, at+after)
	}
	return insertions, deletions
}

// hunkRange returns the lines of a hunk: the number of the first, and how many. An empty range has
// the number of the line before it.
func hunkRange(start, end int) string {
	switch n := end - start; n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprintf("%d", start+1)
	default:
		return fmt.Sprintf("%d,%d", start+1, n)
	}
}

// writeLines writes lines [start, end) of a text, each after the mark.
func writeLines(w *bufio.Writer, mark byte, text lines, start, end int) {
	// Errors of a bufio.Writer stay with it until Flush.
	for i := start; i < end; i++ {
		line := text.line(i)
		_ = w.WriteByte(mark)
		_, _ = w.Write(line)
		if line[len(line)-1] != '\n' {
			_, _ = w.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// lines is a text of at most maxTextDiff bytes, cut after each newline. No line is empty.
type lines struct {
	text []byte
	// starts are the offsets of the lines and of the end of the text; for short lines slices of slices
	// would need far more memory.
	starts []int32
}

func splitLines(text []byte) lines {
	starts := make([]int32, 1, bytes.Count(text, []byte("\n"))+2)
	for at := 0; at < len(text); {
		n := bytes.IndexByte(text[at:], '\n') + 1
		if n == 0 {
			n = len(text) - at
		}
		at += n
		starts = append(starts, int32(at))
	}
	return lines{text, starts}
}

func (l lines) len() int { return len(l.starts) - 1 }

// line returns line i with its newline, if it has one.
func (l lines) line(i int) []byte { return l.text[l.starts[i]:l.starts[i+1]] }

// diffLines returns edits that make b of a. Its time is about linear in the number of lines: it
// splits regions at lines that occur once in both texts, and compares only the rest line by line,
// with a bounded search.
func diffLines(a, b lines) []edit {
	ids := make(map[string]rune)
	number := func(l lines) []rune {
		numbers := make([]rune, l.len())
		for i := range numbers {
			line := l.line(i)
			id, ok := ids[string(line)]
			if !ok {
				id = rune(len(ids))
				ids[string(line)] = id
			}
			numbers[i] = id
		}
		return numbers
	}
	d := &lineDiff{a: number(a), b: number(b)}
	d.region(0, a.len(), 0, b.len(), 0)
	return d.edits
}

// lineDiff compares two sequences of line numbers; equal lines have equal numbers.
type lineDiff struct {
	a, b  []rune
	edits []edit
}

// add appends an edit, as part of the one before if they touch.
func (d *lineDiff) add(e edit) {
	if n := len(d.edits); n > 0 && d.edits[n-1].a1 == e.a0 && d.edits[n-1].b1 == e.b0 {
		d.edits[n-1].a1, d.edits[n-1].b1 = e.a1, e.b1
		return
	}
	d.edits = append(d.edits, e)
}

// region compares lines [a0, a1) of a with lines [b0, b1) of b.
func (d *lineDiff) region(a0, a1, b0, b1, depth int) {
	for a0 < a1 && b0 < b1 && d.a[a0] == d.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && d.a[a1-1] == d.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 && b0 == b1 {
		return
	}
	if a0 == a1 || b0 == b1 {
		d.add(edit{a0, a1, b0, b1})
		return
	}
	if depth < maxAnchorDepth {
		if anchors := d.anchors(a0, a1, b0, b1); len(anchors) > 0 {
			for _, m := range anchors {
				// The region before may have grown into this anchor already.
				d.region(a0, m.a, b0, m.b, depth+1)
				a0, b0 = m.a, m.b
			}
			d.region(a0, a1, b0, b1, depth+1)
			return
		}
	}
	for _, diff := range lcs.DiffRunes(d.a[a0:a1], d.b[b0:b1]) {
		d.add(edit{a0 + diff.Start, a0 + diff.End, b0 + diff.ReplStart, b0 + diff.ReplEnd})
	}
}

// match pairs line a of the old text with line b of the new one.
type match struct{ a, b int }

// anchors returns the longest ordered sequence of lines that occur once on each side of a region.
func (d *lineDiff) anchors(a0, a1, b0, b1 int) []match {
	type count struct{ inA, inB, at int32 }
	counts := make(map[rune]count)
	for i := a0; i < a1; i++ {
		p := counts[d.a[i]]
		p.inA++
		counts[d.a[i]] = p
	}
	for j := b0; j < b1; j++ {
		if p, ok := counts[d.b[j]]; ok {
			p.inB++
			p.at = int32(j)
			counts[d.b[j]] = p
		}
	}
	var unique []match
	for i := a0; i < a1; i++ {
		if p := counts[d.a[i]]; p.inA == 1 && p.inB == 1 {
			unique = append(unique, match{i, int(p.at)})
		}
	}
	return longestRising(unique)
}

// longestRising returns the longest subsequence of matches, which are sorted by a, that is sorted
// by b as well.
func longestRising(matches []match) []match {
	// ends[n] is the match with the smallest b that ends a rising subsequence of n+1 matches; before
	// links each to its predecessor.
	var ends []int
	before := make([]int, len(matches))
	for i, m := range matches {
		n, _ := slices.BinarySearchFunc(ends, m.b, func(end, b int) int { return matches[end].b - b })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	rising := make([]match, len(ends))
	for n, i := len(ends)-1, ends[len(ends)-1]; n >= 0; n, i = n-1, before[i] {
		rising[n] = matches[i]
	}
	return rising
}
