// Package search finds files in an environment by name and by content. It honours .gitignore files
// as git does, and gives the same results on every backend.
package search

import (
	"context"
	"fmt"
)

// Searcher is implemented by environments that search faster than through Open and ReadDir. Callers
// use [Walk], [Glob] and [Grep], which mean the same for every environment. A decorator implements
// it by calling these functions on its inner environment.
type Searcher interface {
	Walk(ctx context.Context, root string, opts WalkOptions, fn func(Entry) error) error
	Glob(ctx context.Context, opts GlobOptions) ([]Entry, error)
	Grep(ctx context.Context, opts GrepOptions, fn func(GrepMatch) error) (GrepStats, error)
}

// UnreadableError comes with the results of a search that is complete but for files or folders that
// could not be read. It is the outcome of Glob and Grep where a part of the tree is closed to the
// user, not a failure of the search.
type UnreadableError struct {
	// Count is how many files and folders could not be read.
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

// unreadable collects what a search could not read.
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
