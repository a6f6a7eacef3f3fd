package main

import (
	"slices"
	"strings"
	"testing"
)

// TestTail checks that a tail has the last rows, cleaned, counts all lines and keeps a bounded
// text.
func TestTail(t *testing.T) {
	long := strings.Repeat("a line\n", 100_000)
	tests := []struct {
		name   string
		pieces []string
		lines  int
		want   []string
	}{
		{"nothing", nil, 0, nil},
		{"blanks", []string{"\n \n"}, 2, nil},
		{"pieces", []string{"a", "b\nc\nd", "\n", "e"}, 4, []string{"c", "d", "e"}},
		{"ended", []string{"a\nb\n"}, 2, []string{"a", "b"}},
		{"split sequence", []string{"a\x1b", "[2", "Jb\x1b]0;t", "itle\x07c"}, 1, []string{"abc"}},
		{"progress bar", []string{"a\n10%\r20", "%\r30%"}, 2, []string{"a", "30%"}},
		{"wide", []string{"one two three four"}, 1, []string{"one two ", "three four"}},
		{"long", []string{long, "\x1b[1mend"}, 100_001, []string{"a line", "a line", "end"}},
		{
			"cut sequence",
			[]string{"\x1b]0;" + strings.Repeat("x", 3*tailBytes) + "\nend"},
			2,
			[]string{"end"},
		},
		{"many", slices.Collect(strings.Lines(long)), 100_000, []string{"a line", "a line", "a line"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got tail
			for _, piece := range tt.pieces {
				got.add(piece)
			}
			if rows := got.rows(10, 3); !slices.Equal(rows, tt.want) || got.lines() != tt.lines {
				t.Errorf("%q, %d lines", rows, got.lines())
			}
			if len(got.text) > 3*tailBytes {
				t.Errorf("it keeps %d bytes", len(got.text))
			}
		})
	}
}

func TestTextRows(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 4, []string{""}},
		{"abcdefgh", 4, []string{"abcd", "efgh"}},
		{"ab cd ef", 5, []string{"ab ", "cd ef"}},
		{"a bcdefgh", 5, []string{"a bcd", "efgh"}},
		{"日本語", 4, []string{"日本", "語"}},
		{"a\tb\n\nc\n\n", 9, []string{"a    b", "", "c"}},
		{"ab\x1b[2J\u009bc", 4, []string{"ab\\u", "009b", "c"}},
	} {
		if got := textRows(tt.text, tt.width); !slices.Equal(got, tt.want) {
			t.Errorf("textRows(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestEditedLines(t *testing.T) {
	for _, tt := range []struct {
		arguments string
		want      []string
	}{
		{
			`{"patch":"*** Begin Patch\n*** Update File: a\n@@\n one\n-two\n+2\n*** End Patch"}`,
			[]string{"-two\n", "+2\n"},
		},
		{`{"old_string":"a\nb\nc\n","new_string":"a\nB\nC\nc\n"}`, []string{"-b", "+B", "+C"}},
		{`{"old_string":"a\n","new_string":""}`, []string{"-a"}},
		{`{"content":"x\ny"}`, []string{"+x", "+y"}},
		{`{"command":"ls"}`, nil},
		{`{"patch":7}`, nil},
		{`not JSON`, nil},
	} {
		if got := editedLines(tt.arguments); !slices.Equal(got, tt.want) {
			t.Errorf("editedLines(%s) = %q, want %q", tt.arguments, got, tt.want)
		}
	}
}
