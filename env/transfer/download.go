package transfer

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// Limits on what an environment may send, where options do not say otherwise.
const (
	// DefaultMaxBytes is the sum of the sizes of all files in a tree.
	DefaultMaxBytes = 16 << 30
	// DefaultMaxEntries is the number of files, links and folders in a tree.
	DefaultMaxEntries = 1_000_000
)

// DownloadOptions are options of Download.
type DownloadOptions struct {
	// MaxBytes bounds the sum of the sizes of all files. Zero means DefaultMaxBytes, a negative number
	// no limit.
	MaxBytes int64
	// MaxEntries bounds the number of files, links and folders. Zero means DefaultMaxEntries, a
	// negative number no limit.
	MaxEntries int
	// SkipRepositories, if set, leaves out the folders and files in which version control programs
	// keep their data (.git, .hg, .svn, .jj, .bzr, however a file system lets them be written), and
	// folders that the host has laid out like a git repository: what stands in them can make these
	// programs run commands. It is called with the name of each, relative to dst.
	SkipRepositories func(name string)
}

// Download copies names, which are slash-separated and relative to the folder dir of an
// environment, or all of dir if there are none, into the folder dst of the host, which is made if
// missing; dir/x becomes dst/x. Existing files are replaced, other files stay. An empty dir is the
// working directory. A missing name is fs.ErrNotExist.
//
// The environment is not trusted. A name that leaves dst, a symbolic link that points out of dst,
// an entry below a symbolic link, a device or a pipe ends the download with an error, and more than
// opts allows with ErrTreeTooLarge; ErrEscapes stands for the first three. Nothing outside dst is
// touched. The setuid, setgid and sticky bits are dropped. After an error a part of the tree may be
// there.
//
// The data is streamed, in one round trip and in bounded memory.
func Download(
	ctx context.Context, e env.Copier, dir string, names []string, dst string, opts DownloadOptions,
) (err error) {
	dir = cmp.Or(dir, ".")
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer func() { _ = root.Close() }()
	archive, err := e.CopyOut(ctx, dir, names...)
	if err != nil {
		return fmt.Errorf("download %s: %w", dir, err)
	}
	unpack := tartree.UnpackOptions{
		MaxEntries:         int(tartree.Limit(int64(opts.MaxEntries), DefaultMaxEntries)),
		MaxBytes:           tartree.Limit(opts.MaxBytes, DefaultMaxBytes),
		RefuseOutsideLinks: true,
	}
	if opts.SkipRepositories != nil {
		found := findRepositories(root, opts.SkipRepositories)
		unpack.Skip = func(name string) bool { return found.isTop() || found.holds(name) }
	}
	err = tartree.Unpack(ctx, root, archive, unpack)
	if cerr := archive.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("download %s to %s: %w", dir, dst, err)
	}
	return nil
}
