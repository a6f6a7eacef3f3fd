package main

import (
	"strings"
	"testing"
	"time"
)

func TestCut(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  string
	}{
		{"", 5, ""}, {"abc", 5, "abc"}, {"abcde", 5, "abcde"}, {"abcdef", 5, "abcd…"}, {
			"日本語", 6, "日本語",
		}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"},
	}
	for _, tt := range tests {
		if got := cut(tt.text, tt.width); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"lines", "a\nb\r\n\tc", "a b c"},
		{"colour", "\x1b[31mred\x1b[0m", "red"},
		{"title and clipboard", "\x1b]0;evil\x07a\x1b]52;c;aGk=\x1b\\b", "ab"},
		{"direction", "a\u202eb", `a\u202eb`},
		{"C1", "a\u0085b", `a\u0085b`},
		{"invalid", "a\xffb", "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := oneLine(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := oneLine(strings.Repeat("x", 1<<20)); len(got) > 9<<10 {
		t.Errorf("a long text became %d bytes", len(got))
	}
}

func TestSubject(t *testing.T) {
	tests := []struct{ args, want string }{
		{`{"command":"go test\n./..."}`, "go test ./..."},
		{`{"pattern":"x","path":"y"}`, "x"},
		{
			`{"patch":"*** Begin Patch\n*** Update File: a.go\n@@\n` +
				`*** Add File: b c.go\n+x\n*** End Patch"}`,
			"a.go, b c.go",
		},
		{`{"patch":7}`, ""},
		{`{}`, ""},
		{`{"command":`, `{"command":`},
		{``, ""},
	}
	for _, tt := range tests {
		if got := subject(tt.args); got != tt.want {
			t.Errorf("subject(%s) = %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Millisecond: "3ms", 1500 * time.Millisecond: "1.5s", 61 * time.Second: "1m1s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("shortDuration(%s) = %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1234: "1.2k", 2_500_000: "2.5M"} {
		if got := shortCount(n); got != want {
			t.Errorf("shortCount(%d) = %s, want %s", n, got, want)
		}
	}
}
