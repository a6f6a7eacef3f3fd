package tartree

import (
	"os"
	"path/filepath"
	"strings"
)

// readFlags open a file for reading.
const readFlags = os.O_RDONLY

// validHere reports whether a clean name means the same on this system as in an archive: no other
// separator, no drive or stream, no reserved device name.
func validHere(name string) bool {
	return !strings.ContainsAny(name, `\:`) && filepath.IsLocal(filepath.FromSlash(name))
}
