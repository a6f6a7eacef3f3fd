package tool

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// Sanitize returns the output of a command in a form that is safe to show to a model or on a
// terminal:
//
//   - Terminal control sequences are removed with their contents: colours, cursor movements,
//     titles, hyperlinks, clipboard contents. An unterminated sequence stops at the end of its
//     line, so that it cannot hide the text that follows.
//   - "\r\n" becomes "\n". A lone carriage return starts its line over, as on a terminal: only the
//     last state of a progress bar remains. In a line of more than 8 KiB it becomes a line break.
//   - Other control characters, except line break and tab, become visible: U+2400 and following for
//     the C0 range and DEL, an escape like \u0085 for the C1 range.
//   - Characters that change the writing direction (U+202A to U+202E, U+2066 to U+2069) become
//     escapes like \u202e.
//   - Invalid UTF-8 becomes U+FFFD, one for each byte.
//
// The result is valid UTF-8, and Sanitize does not change it again.
func Sanitize(s string) string {
	return (&cleaner{mode: cleanText}).all(s)
}

// A Sanitizer sanitizes text that arrives in pieces and goes to a terminal, as [Sanitize] does.
// Sequences and characters may be split anywhere. It does not delay lines, so a lone carriage
// return becomes a line break. It is not safe for concurrent use.
type Sanitizer struct {
	w   io.Writer
	c   cleaner
	buf []byte
}

// NewSanitizer returns a Sanitizer that writes to w.
func NewSanitizer(w io.Writer) *Sanitizer {
	return &Sanitizer{w: w, c: cleaner{mode: cleanStream}}
}

// Write sanitizes p and writes the result. It returns len(p) unless the writer fails.
func (s *Sanitizer) Write(p []byte) (int, error) {
	s.buf = s.c.append(s.buf[:0], p)
	return len(p), s.write()
}

// Close writes an unfinished character. It does not close the writer.
func (s *Sanitizer) Close() error {
	s.buf = s.c.flush(s.buf[:0])
	return s.write()
}

func (s *Sanitizer) write() error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := s.w.Write(s.buf)
	return err
}

type cleanMode int

const (
	// cleanFile replaces only NUL, which some JSON decoders reject, and invalid UTF-8.
	cleanFile cleanMode = iota
	// cleanText cleans as Sanitize does.
	cleanText
	// cleanStream is cleanText without delayed lines.
	cleanStream
)

type cleanState int

const (
	inText cleanState = iota
	// inEscape: after ESC.
	inEscape
	// inIntermediate: after ESC and a byte that announces one more.
	inIntermediate
	// inControl: within a control sequence, after ESC [.
	inControl
	// inString: within a string that ends with BEL or ESC \.
	inString
)

const (
	esc = 0x1b
	bel = 0x07
	// longestLine bounds the bytes of a line that are delayed for a carriage return that may replace
	// them.
	longestLine = 8 << 10
	// longestControl is the length of the longest control sequence that is removed.
	longestControl = 64
)

// cleaner is the state between two pieces of text. Its zero value is for files.
type cleaner struct {
	mode  cleanMode
	state cleanState
	// partial is the start of a character, at most three bytes.
	partial []byte
	// length counts the characters of the present control sequence.
	length int
	// cr reports that the last character was a carriage return.
	cr bool
	// line is the delayed part of the current line; long reports that its start was already emitted.
	line []byte
	long bool
}

// append appends p, cleaned, to dst. Only whole characters are appended.
func (c *cleaner) append(dst, p []byte) []byte {
	if len(c.partial) > 0 {
		p = append(c.partial, p...)
		c.partial = nil
	}
	for len(p) > 0 {
		if n := c.plain(p); n > 0 {
			dst, p = c.emit(dst, p[:n]), p[n:]
			continue
		}
		if !utf8.FullRune(p) {
			c.partial = bytes.Clone(p)
			break
		}
		r, size := utf8.DecodeRune(p)
		dst, p = c.rune(dst, r), p[size:]
	}
	return dst
}

// all cleans a whole text.
func (c *cleaner) all(s string) string {
	return string(c.flush(c.append(make([]byte, 0, len(s)), []byte(s))))
}

// flush ends the text: nothing follows.
func (c *cleaner) flush(dst []byte) []byte {
	partial := c.partial
	c.partial = nil
	for range partial {
		dst = c.rune(dst, utf8.RuneError)
	}
	dst = append(dst, c.line...)
	c.line, c.cr, c.state = nil, false, inText
	return dst
}

// plain returns the number of bytes at the start of p that are printable ASCII, outside a sequence.
func (c *cleaner) plain(p []byte) int {
	if c.state != inText || c.cr {
		return 0
	}
	n := 0
	for n < len(p) && p[n] >= ' ' && p[n] < 0x7f {
		n++
	}
	return n
}

// emit appends text to dst or to the delayed line.
func (c *cleaner) emit(dst, text []byte) []byte {
	if c.mode != cleanText {
		return append(dst, text...)
	}
	c.line = append(c.line, text...)
	if len(c.line) > longestLine {
		dst = append(dst, c.line...)
		c.line, c.long = c.line[:0], true
	}
	return dst
}

func (c *cleaner) newline(dst []byte) []byte {
	dst = append(append(dst, c.line...), '\n')
	c.line, c.long, c.cr = c.line[:0], false, false
	return dst
}

func (c *cleaner) rune(dst []byte, r rune) []byte {
	if c.mode == cleanFile {
		if r == 0 {
			r = '\u2400'
		}
		return utf8.AppendRune(dst, r)
	}
	if c.skip(r) {
		return dst
	}
	if c.cr && r != '\n' && r != '\r' && r != esc {
		c.cr = false
		if c.mode == cleanText && !c.long {
			c.line = c.line[:0]
		} else {
			dst = c.newline(dst)
		}
	}
	switch {
	case r == esc:
		c.state = inEscape
	case r == '\n':
		dst = c.newline(dst)
	case r == '\r':
		c.cr = true
	case r == '\t':
		dst = c.emit(dst, []byte{'\t'})
	case r < ' ':
		dst = c.emit(dst, utf8.AppendRune(nil, 0x2400+r))
	case r == 0x7f:
		dst = c.emit(dst, []byte("\u2421"))
	case r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		dst = c.emit(dst, fmt.Appendf(nil, `\u%04x`, r))
	default:
		dst = c.emit(dst, utf8.AppendRune(nil, r))
	}
	return dst
}

// skip reports whether r belongs to a control sequence. If not, the state is inText.
func (c *cleaner) skip(r rune) bool {
	switch c.state {
	case inEscape:
		c.length = 0
		switch {
		case r == '[':
			c.state = inControl
		case r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_':
			c.state = inString
		case r >= ' ' && r < '0':
			c.state = inIntermediate
		case r >= '0' && r < 0x7f:
			c.state = inText
		default:
			return c.leave()
		}
	case inIntermediate, inControl:
		c.length++
		final := rune('@')
		if c.state == inIntermediate {
			final = '0'
		}
		switch {
		case r < ' ' || r >= 0x7f || c.length > longestControl:
			return c.leave()
		case r >= final:
			c.state = inText
		}
	case inString:
		switch r {
		case bel, 0x18, 0x1a, 0x9c:
			c.state = inText
		case '\n', esc:
			return c.leave()
		}
	default:
		return false
	}
	return true
}

// leave ends a sequence before the current character, which is then handled as text.
func (c *cleaner) leave() bool {
	c.state = inText
	return false
}
