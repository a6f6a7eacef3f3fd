//go:build !unix

package ssh

import "io/fs"

// tooOpen reports that nobody else may use a key file: its mode does not say who may.
func tooOpen(string) (fs.FileMode, bool) { return 0, false }
