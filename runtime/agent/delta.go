package agent

import "unicode/utf8"

// textStream converts a stream of bytes to valid UTF-8. It joins characters that two pieces share,
// and replaces invalid bytes by U+FFFD.
type textStream struct {
	rest []byte // an incomplete character
}

// next returns the text of p without an incomplete character at its end.
func (t *textStream) next(p []byte) string {
	b := append(t.rest, p...)
	end := len(b)
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-back:]) {
				end = len(b) - back
			}
			break
		}
	}
	t.rest = append([]byte(nil), b[end:]...)
	return validText(b[:end])
}

// last returns the rest.
func (t *textStream) last() string {
	b := t.rest
	t.rest = nil
	return validText(b)
}

func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]rune, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out = append(out, r)
		b = b[n:]
	}
	return string(out)
}
