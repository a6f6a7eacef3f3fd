package search

import (
	"encoding/binary"
	"hash/fnv"
	"io/fs"
	"syscall"
	"time"
)

// settled is the age from which on a change time is final: after it, every change of the file gives
// another one. It is more than the resolution of the clocks of file systems.
const settled = 2 * time.Second

// stamp returns the stamp of a file: see Entry.
func stamp(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || time.Since(time.Unix(s.Ctim.Unix())) < settled {
		return 0
	}
	hash := fnv.New64a()
	for _, n := range [...]uint64{
		uint64(s.Dev), s.Ino, uint64(s.Size), uint64(s.Mode), //nolint:gosec,unconvert // it is hashed
		uint64(s.Ctim.Nano()), uint64(s.Mtim.Nano()), //nolint:gosec // it is hashed
	} {
		_ = binary.Write(hash, binary.LittleEndian, n) // a hash has no errors
	}
	return max(hash.Sum64(), 1)
}
