package redact

import (
	"strings"

	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

const (
	// maxLine bounds a line that a Writer holds back, in bytes. It passes a longer one on in parts, up
	// to the last lineTail bytes, which may be the start of a secret.
	maxLine  = 64 << 10
	lineTail = 8 << 10
	// nameRoom is how many bytes before a secret may tell that it is one.
	nameRoom = 256
	// maxKey bounds a private key that a Writer holds back. A longer one is redacted up to its end.
	maxKey = 16 << 10
)

// Writer redacts a text that comes in pieces. It holds back the last line until its end, and a
// private key and known values of several lines too.
type Writer struct {
	r    *Redactor
	next func([]byte)
	buf  []byte
	// key means that the text is within a private key that was too long.
	key bool
}

// NewWriter returns a Writer that passes the redacted text to next, which must not keep the slice.
func (r *Redactor) NewWriter(next func([]byte)) *Writer { return &Writer{r: r, next: next} }

// Write adds a piece.
func (w *Writer) Write(p []byte) {
	if w.r == nil {
		w.next(p)
		return
	}
	w.buf = append(w.buf, p...)
	w.pass(false)
}

// Close passes on the rest.
func (w *Writer) Close() {
	if w.r != nil {
		w.pass(true)
	}
}

// pass writes the complete lines of the buffer, or all of it, without secrets.
func (w *Writer) pass(all bool) {
	if w.key && !w.skipKey(all) {
		return
	}
	text := string(w.buf)
	n, within := len(text), false
	if !all {
		n, within = w.complete(text)
	}
	if n == 0 {
		w.startKey(text)
		return
	}
	// The whole buffer is searched, since a secret may begin before n and end behind it.
	secrets := w.r.find(text)
	if !all {
		n, secrets = cut(text, n, within, secrets)
	}
	if n > 0 {
		w.next([]byte(w.whole(replace(text[:n], secrets))))
	}
	w.buf = append(w.buf[:0], w.buf[n:]...)
}

// controls are those of a terminal, such as for colours.
var controls = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|` +
	`[ -/]*[0-~])?|[\x00\x08\x0e\x0f]`)

// whole returns a text without the secrets that controls divide; it has no controls then.
func (w *Writer) whole(text string) string {
	if strings.IndexByte(text, 0x1b) < 0 && strings.IndexByte(text, 0x08) < 0 &&
		strings.IndexByte(text, 0) < 0 {
		return text
	}
	plain := controls().ReplaceAllString(text, "")
	if redacted := w.r.Text(plain); redacted != plain {
		return redacted
	}
	return text
}

// cut returns an end near n for the part of the text to write, one that splits no secret, and the
// secrets before that end. Within a line a secret stays together with the text before it, such as
// its name.
func cut(text string, n int, within bool, secrets []span) (int, []span) {
	done := 0 // the end of the secret before
	for i, x := range secrets {
		switch {
		case x.end < n || x.end == n && n < len(text):
		case !within:
			return min(n, x.start), secrets[:i]
		case x.start >= n+nameRoom:
			return n, secrets[:i]
		case x.end < len(text):
			n = x.end
		default: // it may go on
			return min(n, max(done, x.start-nameRoom)), secrets[:i]
		}
		done = x.end
	}
	return n, secrets
}

// startKey redacts the start of a private key that is too long to hold back.
func (w *Writer) startKey(text string) {
	last := strings.LastIndexByte(text, '\n') + 1
	if last <= maxKey {
		return
	}
	if _, open := vars.PrivateKey(text); !open {
		return
	}
	for _, x := range w.r.find(text[:last])[:1] {
		w.next([]byte(x.marker))
	}
	w.buf, w.key = append(w.buf[:0], text[last:]...), true
}

// skipKey drops the rest of a private key, and reports whether it has ended.
func (w *Writer) skipKey(all bool) bool {
	const begin = "-----BEGIN PRIVATE KEY-----\nMIIEMIIEMIIEMIIE\n"
	text := string(w.buf)
	end, open := vars.PrivateKey(begin + text)
	if open && !all {
		last := strings.LastIndexByte(text, '\n') + 1
		w.buf = append(w.buf[:0], text[max(last, len(text)-maxLine):]...)
		return false
	}
	w.buf, w.key = append(w.buf[:0], text[max(0, end-len(begin)):]...), false
	return true
}

// complete returns how many bytes of a text are whole lines, without the start of a private key or
// of a known value, and whether that ends within a line.
func (w *Writer) complete(text string) (n int, within bool) {
	n = strings.LastIndexAny(text, "\r\n") + 1
	tail := lineTail
	if len(w.r.values) > 0 {
		tail = max(tail, len(w.r.values[0].text)) // the longest
	}
	if len(text)-n > max(maxLine, 2*tail) {
		n, within = len(text)-tail, true
	}
	// LastIndex is much slower than Contains.
	if strings.Contains(text[:n], "-----BEGIN ") {
		begin := strings.LastIndex(text[:n], "-----BEGIN ")
		if _, open := vars.PrivateKey(text[begin:]); open {
			n = begin
		}
	}
	for _, v := range w.r.values {
		if !strings.ContainsAny(v.text, "\r\n") {
			continue
		}
		for k := min(len(v.text)-1, n); k > 0; k-- {
			if strings.HasSuffix(text[:n], v.text[:k]) {
				n -= k
				break
			}
		}
	}
	return n, within
}
