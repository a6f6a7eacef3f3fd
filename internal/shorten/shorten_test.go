package shorten_test

import (
	"testing"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

func TestShorten(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{shorten.Line(" a\n\tb  c "), "a b c"},
		{shorten.Cut("äbc", 3), "äbc"},
		{shorten.Cut("äbcd", 3), "äb…"},
		{shorten.Cut("", 1), ""},
		{shorten.Middle("abcdef", 6), "abcdef"},
		{shorten.Middle("abcdefg", 6), "abc\n[…]\nefg"},
		{shorten.Middle("aäbcdäf", 4), "a\n[…]\nf"},
		{shorten.Middle("ab", 0), "\n[…]\n"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}
