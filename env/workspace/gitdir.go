package workspace

import (
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// maxSmall bounds the size of git's short files, in bytes.
const maxSmall = 1 << 20

// enclosingRepository returns the nearest parent directory of dir that is the top of a working
// tree; empty if none is.
func enclosingRepository(dir string) string {
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if gitrepo.IsHostTop(up) {
			return up
		}
	}
	return ""
}

// belowModules reports whether the path name is in a directory for submodules of the git directory
// common.
func belowModules(common, name string) bool {
	rel, err := filepath.Rel(common, name)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	return len(parts) > 1 && parts[0] == "modules" || len(parts) > 3 && parts[0] == "worktrees" &&
		parts[2] == "modules"
}
