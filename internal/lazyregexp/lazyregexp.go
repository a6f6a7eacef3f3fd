// Package lazyregexp compiles regular expressions when they are needed first, so that a program
// does not pay at its start for those that it does not use.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns what compiles a pattern at its first call, and panics then if it is malformed. It is
// safe for concurrent use.
func New(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
