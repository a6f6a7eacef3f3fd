package workspace

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: a new file inherits the owner of its directory.
func keepOwner(*os.File, fs.FileInfo) {}
