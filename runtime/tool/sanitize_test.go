package tool

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSanitize(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "a\tb\nc ✓ 世界\n", "a\tb\nc ✓ 世界\n"},
		{"colours", "\x1b[1;31mred\x1b[0m", "red"},
		{"clear screen and cursor", "\x1b[2J\x1b[Hx\x1b[?25l", "x"},
		{"title", "\x1b]0;owned\x07x", "x"},
		{"clipboard", "a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"},
		{"hyperlink", "\x1b]8;;http://evil/\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"device control", "\x1bP1$r0m\x1b\\x", "x"},
		{"application, privacy and start of string", "\x1b_G1\x1b\\a\x1b^p\x1b\\b\x1bXs\x1b\\c", "abc"},
		{"charset and keypad", "\x1b(B\x1b=\x1b7x\x1bc", "x"},
		{"string ended by the C1 terminator", "\x1b]0;t\u009cx", "x"},
		{"string never ended", "a\x1b]0;hidden\nb", "a\nb"},
		{"string cancelled", "\x1bPabc\x18x", "x"},
		{"sequence interrupted by a line", "a\x1b[31\nb", "a\nb"},
		{"sequence interrupted by a sequence", "\x1b[3\x1b[1mx", "x"},
		{"sequence interrupted by text", "\x1b[3é", "é"},
		{"endless sequence", "\x1b[" + strings.Repeat("1", 100), strings.Repeat("1", 36)},
		{"escape at the end", "x\x1b", "x"},
		{"escape before text", "\x1bé", "é"},
		{"bell, backspace, null, delete", "a\x07\x08\x00\x7f", "a␇␈␀␡"},
		{"C1", "\u009b31m\u0085", `\u009b31m\u0085`},
		{"bidi", "a\u202eb\u2066c\u2069", `a\u202eb\u2066c\u2069`},
		{"crlf", "a\r\nb\r\n", "a\nb\n"},
		{"doubled carriage return", "a\r\r\nb", "a\nb"},
		{"progress bar", "10%\r50%\r100%\ndone\n", "100%\ndone\n"},
		{"progress bar with erased lines", "10%\r\x1b[K100%\r\x1b[K\nx", "100%\nx"},
		{"progress bar that ends in a carriage return", "10%\r20%\r", "20%"},
		{"progress bar after other lines", "a\nb\r", "a\nb"},
		{"long line", strings.Repeat("x", longestLine+1) + "\rb", strings.Repeat("x", longestLine+1) +
			"\nb"},
		{"invalid utf-8", "a\xff\xc3(\xe2\x82", "a\uFFFD\uFFFD(\uFFFD\uFFFD"},
		{"surrogate", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"raw C1 byte", "\x9b31m", "\uFFFD31m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Sanitize(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSanitizer(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []string
		want string
	}{
		{"split sequence", []string{"a\x1b", "[", "3", "1mb\x1b]0;t", "itle\x1b", "\\c"}, "abc"},
		{"split character", []string{"\xe2", "\x82", "\xac"}, "€"},
		{"unfinished character", []string{"a\xe2\x82"}, "a\uFFFD\uFFFD"},
		{"split crlf", []string{"a\r", "\nb"}, "a\nb"},
		{"carriage return becomes a line", []string{"1%\r2%", "\r3%\n"}, "1%\n2%\n3%\n"},
		{"prompt without a line break", []string{"sure? "}, "sure? "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			s := NewSanitizer(&b)
			for _, p := range tt.in {
				if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if b.String() != tt.want {
				t.Errorf("got %q, want %q", b.String(), tt.want)
			}
		})
	}
}

func TestSanitizerWriteError(t *testing.T) {
	want := errors.New("broken pipe")
	s := NewSanitizer(writerFunc(func([]byte) (int, error) { return 0, want }))
	if _, err := s.Write([]byte("x")); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func FuzzSanitize(f *testing.F) {
	for _, s := range []string{
		"a\x1b[31mb\r\nc\rd\x1b]0;t\x07", "\u202e\xff\x00", "\x1bP\n\x1b\\", "\r\r\n\r",
	} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, size int) {
		got := Sanitize(s)
		checkClean(t, got)
		if again := Sanitize(got); again != got {
			t.Fatalf("not stable: %q became %q", got, again)
		}
		// The way it is cut into pieces makes no difference.
		size = max(1, size%16)
		c := cleaner{mode: cleanText}
		var b bytes.Buffer
		stream := NewSanitizer(&b)
		var pieces []byte
		for p := []byte(s); len(p) > 0; {
			n := min(size, len(p))
			pieces = c.append(pieces, p[:n])
			_, _ = stream.Write(p[:n])
			p = p[n:]
		}
		if pieces = c.flush(pieces); string(pieces) != got {
			t.Fatalf("in pieces of %d: %q, whole: %q", size, pieces, got)
		}
		_ = stream.Close()
		checkClean(t, b.String())
	})
}

func checkClean(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Fatalf("%q is not valid UTF-8", s)
	}
	for _, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e ||
			r >= 0x2066 && r <= 0x2069 {
			t.Fatalf("%q holds %U", s, r)
		}
	}
}
