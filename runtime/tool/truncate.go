package tool

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// defaultLimit is the limit of characters of a tool that sets none.
const defaultLimit = 30_000

// over returns l with the fields that override sets. Negative lines remove the limit of lines.
func (l Limit) over(override Limit) Limit {
	if override.Chars > 0 {
		l.Chars = override.Chars
	}
	if override.Lines != 0 {
		l.Lines = override.Lines
	}
	if override.Keep != "" {
		l.Keep = override.Keep
	}
	if l.Chars <= 0 {
		l.Chars = defaultLimit
	}
	return l
}

// cutter keeps the start and the end of a text that is written to it, and counts the rest. The text
// is valid UTF-8 and arrives in whole characters. The limit bounds the memory.
type cutter struct {
	limit Limit
	// head holds the first limit.Chars characters, tail at least the last limit.Chars of the rest.
	head, tail []byte
	headChars  int
	chars      int64
	breaks     int64
}

func (c *cutter) write(p []byte) {
	n := utf8.RuneCount(p)
	c.chars += int64(n)
	c.breaks += int64(bytes.Count(p, []byte{'\n'}))
	if room := c.limit.Chars - c.headChars; room > 0 {
		taken := p
		if n > room {
			taken = p[:runes(p, room)]
		}
		c.head = append(c.head, taken...)
		c.headChars += min(n, room)
		p = p[len(taken):]
	}
	c.tail = append(c.tail, p...)
	if len(c.tail) > 2*utf8.UTFMax*c.limit.Chars {
		c.tail = append(c.tail[:0], c.tail[lastRunes(c.tail, c.limit.Chars):]...)
	}
}

// cut is a text with a part left out between head and tail.
type cut struct {
	head, tail []byte
	// chars and breaks count the characters and line breaks left out.
	chars, breaks int64
	// truncated reports that a part was left out.
	truncated bool
}

// cut returns the part of the text that fits into the limit together with reserved.
func (c *cutter) cut(reserved string) cut {
	chars := c.limit.Chars - utf8.RuneCountInString(reserved)
	var t cut
	if c.chars <= int64(chars) {
		t.head = c.head
	} else {
		front, back := shares(chars, c.limit.Keep)
		t.truncated = true
		t.head = c.head[:runes(c.head, front)]
		t.tail = c.last(back)
	}
	if c.limit.Lines > 0 {
		t.cutLines(max(1, c.limit.Lines-strings.Count(reserved, "\n")), c.limit.Keep)
	}
	t.chars = c.chars - int64(utf8.RuneCount(t.head)+utf8.RuneCount(t.tail))
	t.breaks = c.breaks - int64(bytes.Count(t.head, []byte{'\n'})+bytes.Count(t.tail, []byte{'\n'}))
	return t
}

// last returns the last n characters of the text.
func (c *cutter) last(n int) []byte {
	missing := n - utf8.RuneCount(c.tail)
	if missing <= 0 {
		return c.tail[lastRunes(c.tail, n):]
	}
	// The tail is still complete, so the text is head and tail.
	return append(bytes.Clone(c.head[lastRunes(c.head, missing):]), c.tail...)
}

// cutLines leaves at most n lines.
func (t *cut) cutLines(n int, keep Keep) {
	have := countLines(t.head) + countLines(t.tail)
	if have <= n {
		return
	}
	front, back := shares(n, keep)
	if !t.truncated {
		t.tail, t.truncated = t.head, true
	}
	t.head = t.head[:lines(t.head, front)]
	t.tail = t.tail[lastLines(t.tail, back):]
}

// shares divides n between the start and the end.
func shares(n int, keep Keep) (front, back int) {
	switch keep {
	case KeepHead:
		return n, 0
	case KeepTail:
		return 0, n
	default:
		return n / 2, n - n/2
	}
}

// text returns the cut text with a mark in place of the missing part. where explains how to read
// it.
func (t cut) text(where string) string {
	if !t.truncated {
		return string(t.head)
	}
	var b strings.Builder
	b.Write(t.head)
	if len(t.head) > 0 {
		b.WriteString("\n")
		if t.head[len(t.head)-1] != '\n' {
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "[Output shortened: %d characters", t.chars)
	if t.breaks > 0 {
		fmt.Fprintf(&b, " with %d line breaks", t.breaks)
	}
	b.WriteString(" are left out here. " + where + "]\n")
	if len(t.tail) > 0 {
		b.WriteString("\n")
		b.Write(t.tail)
	}
	return b.String()
}

// runes returns the length in bytes of the first n characters of p, or of p if it has fewer.
func runes(p []byte, n int) int {
	i := 0
	for ; n > 0 && i < len(p); n-- {
		_, size := utf8.DecodeRune(p[i:])
		i += size
	}
	return i
}

// lastRunes returns the index of the last n characters of p.
func lastRunes(p []byte, n int) int {
	i := len(p)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRune(p[:i])
		i -= size
	}
	return i
}

// countLines counts lines; the last one may lack its line break.
func countLines(p []byte) int {
	n := bytes.Count(p, []byte{'\n'})
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return n
}

// lines returns the length in bytes of the first n lines of p.
func lines(p []byte, n int) int {
	i := 0
	for ; n > 0 && i < len(p); n-- {
		end := bytes.IndexByte(p[i:], '\n')
		if end < 0 {
			return len(p)
		}
		i += end + 1
	}
	return i
}

// lastLines returns the index of the last n lines of p.
func lastLines(p []byte, n int) int {
	i := len(p)
	for ; n > 0 && i > 0; n-- {
		i = bytes.LastIndexByte(p[:i-1], '\n') + 1
	}
	return i
}
