package main

import "io/fs"

// ownedHere reports whether a file belongs to this user. Directories of users have access control
// lists on Windows.
func ownedHere(fs.FileInfo) bool { return true }
