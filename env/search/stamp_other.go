//go:build !linux

package search

import "io/fs"

// stamp returns no stamp: see Entry.
func stamp(fs.FileInfo) uint64 { return 0 }
