//go:build !linux

package snapshot

import "os"

func newSpool(dir string) (f *os.File, named bool, err error) { return namedSpool(dir) }
