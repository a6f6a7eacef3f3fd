// Package lazyregexp compiles regular expressions at their first use, which keeps the start of a
// program fast.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles the pattern at its first call, and then panics if it is
// malformed. The function may be called concurrently.
func New(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
