// Package shorten shortens texts for people and models.
package shorten

import "strings"

// Line returns s in one line: with one space instead of white space, and none around it.
func Line(s string) string { return strings.Join(strings.Fields(s), " ") }

// Cut returns at most the first n characters of s; an ellipsis replaces the last one if s has more.
func Cut(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// Middle returns at most about n bytes of s: its start and its end.
func Middle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := s[:n/2], s[len(s)-n/2:]
	return strings.ToValidUTF8(head, "") + "\n[…]\n" + strings.ToValidUTF8(tail, "")
}
