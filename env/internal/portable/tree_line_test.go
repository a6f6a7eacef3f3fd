package portable

import (
	"errors"
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestTreeLines takes what a shell says of three folders, of which the last cannot be asked for.
func TestTreeLines(t *testing.T) {
	const x, y, z = "81a4 5 1 2001-02-03 04:05:06.000000007 +0000 /a/x", "81a4 5 1 2001-02-03 04:05:06.000000007 +0000 /a/y", "81a4 5 1 2001-02-03 04:05:06.000000007 +0000 /b/z"
	for name, tt := range map[string]struct {
		lines   []string
		codes   []int
		entries []int // how many there are
		bad     bool  // the last line
	}{
		"all":                                {[]string{"= 0 0", x, "= 1 0", y, z}, []int{0, 0, 0}, []int{2, 1, 0}, false},
		"codes":                              {[]string{"= 0 2", "= 1 9"}, []int{2, 9, 0}, []int{0, 0, 0}, false},
		"all void":                           {[]string{"= 0 0", x, "= 1 0", z, "- 0 2"}, []int{-1, -1, 0}, []int{0, 0, 0}, false},
		"all void, and once more":            {[]string{"= 0 0", "= 1 0", x, z, "- 0 2", x, y, "= 0 0", "= 1 9"}, []int{0, 9, 0}, []int{2, 0, 0}, false},
		"the first is void":                  {[]string{"= 0 0", x, "= 1 0", z, "- 0 1"}, []int{-1, 0, 0}, []int{0, 1, 0}, false},
		"the second is void":                 {[]string{"= 0 0", x, "= 1 0", z, "- 1 1"}, []int{0, -1, 0}, []int{1, 0, 0}, false},
		"more are void than there are":       {[]string{"= 0 0", x, "- 1 900"}, []int{0, -1, -1}, []int{1, 0, 0}, false},
		"none is void":                       {[]string{"= 0 0", x, "- 0 0"}, []int{0, -1, 0}, []int{1, 0, 0}, false},
		"void from one on that is not there": {[]string{"- 3 1"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"void from one on not asked for":     {[]string{"- 2 1"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"void from a negative one on":        {[]string{"- -1 1"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"how many are void is missing":       {[]string{"- 0"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"how many are void is no number":     {[]string{"- 0 x"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"too many numbers":                   {[]string{"- 0 1 1"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"another sign":                       {[]string{"~ 0 1"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
		"an entry of another folder":         {[]string{"81a4 5 1 2001-02-03 04:05:06.000000007 +0000 /c/x"}, []int{-1, -1, 0}, []int{0, 0, 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tree := &tree{
				names: []string{"a", "b", "bad"}, full: []string{"/a", "/b", ""}, number: map[string]int{"/a/": 0, "/b/": 1},
				codes: []int{-1, -1, 0}, folders: make([]env.Folder, 3),
			}
			for i, line := range tt.lines {
				err := tree.line(line)
				if bad := tt.bad && i == len(tt.lines)-1; (err != nil) != bad || bad && !errors.Is(err, env.ErrProtocol) {
					t.Errorf("%q: error %v", line, err)
				}
			}
			var entries []int
			for _, f := range tree.folders {
				entries = append(entries, len(f.Entries))
			}
			if !slices.Equal(tree.codes, tt.codes) || !slices.Equal(entries, tt.entries) {
				t.Errorf("codes %v, want %v; %v entries, want %v", tree.codes, tt.codes, entries, tt.entries)
			}
		})
	}
}
