package workspace

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: a new file has the owner that its folder gives.
func keepOwner(*os.File, fs.FileInfo) {}
