// Package search finds files in an environment: [Walk] lists a tree, [Glob] selects names by
// patterns, and [Grep] finds lines by a regular expression. They honour .gitignore files as git
// does.
//
// The results are the same for every environment. One that implements [Searcher] searches beside
// its files, in one round trip; any other is searched through Open and ReadDir.
package search

import (
	"context"
	"fmt"
)

// Searcher is implemented by environments that search faster than through Open and ReadDir. Callers
// use [Walk], [Glob] and [Grep], which have the same results for every environment. A decorator
// implements it by calling these functions on its inner environment.
type Searcher interface {
	Walk(ctx context.Context, root string, opts WalkOptions, fn func(Entry) error) error
	Glob(ctx context.Context, opts GlobOptions) ([]Entry, error)
	Grep(ctx context.Context, opts GrepOptions, fn func(GrepMatch) error) (GrepStats, error)
}

// UnreadableError accompanies the results of Glob and Grep if some files or directories could not
// be read. The results are complete otherwise.
type UnreadableError struct {
	// Count is the number of files and directories that could not be read.
	Count int
	// First is the first of the errors.
	First error
}

func (e *UnreadableError) Error() string {
	if e.Count == 1 {
		return e.First.Error()
	}
	return fmt.Sprintf("%v (and %d more could not be read)", e.First, e.Count-1)
}

// Unwrap returns the first error.
func (e *UnreadableError) Unwrap() error { return e.First }

// unreadable collects the errors of unreadable files and directories.
type unreadable UnreadableError

func (u *unreadable) add(err error) {
	u.Count++
	if u.First == nil {
		u.First = err
	}
}

func (u *unreadable) err() error {
	if u.Count == 0 {
		return nil
	}
	return (*UnreadableError)(u)
}
