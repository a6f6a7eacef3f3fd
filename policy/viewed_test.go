package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestViewed(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"cat a.go b/c.go":                     {"a.go", "b/c.go"},
		"cat 'a b' | head -n 3":               {"a b", "3"},
		"/bin/cat a && timeout 5 sed -n 1p b": {"a", "1p", "b"},
		"rm a; touch b":                       nil,
		"cat *.go $x":                         nil,
		"cd b && cat a":                       nil,
		"for f in 1 2; do cat c; done":        {"c"},
		"cat a a":                             {"a"},
		"cat 'unfinished":                     nil,
	} {
		if got := Viewed(command); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, " f%d", i)
	}
	if got := Viewed("cat" + many.String()); len(got) != maxViewed {
		t.Errorf("%d names, want %d", len(got), maxViewed)
	}
}
