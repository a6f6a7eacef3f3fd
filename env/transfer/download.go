package transfer

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// Default limits of a tree from an environment.
const (
	// DefaultMaxBytes bounds the sum of the sizes of all files.
	DefaultMaxBytes = 16 << 30
	// DefaultMaxEntries bounds the number of files, symlinks and directories.
	DefaultMaxEntries = 1_000_000
)

// maxHeads bounds the number of files called HEAD that Download makes last.
const maxHeads = 10_000

// DownloadOptions are options of Download.
type DownloadOptions struct {
	// MaxBytes bounds the sum of the sizes of all files. Zero means DefaultMaxBytes, a negative number
	// no limit.
	MaxBytes int64
	// MaxEntries bounds the number of files, symlinks and directories. Zero means DefaultMaxEntries, a
	// negative number no limit.
	MaxEntries int
	// SkipRepositories, if set, leaves out the directories and files of version control systems (.git,
	// .hg, .svn, .jj, .bzr, in any spelling that some file system takes for them), git directories of
	// the host, and the file, symlink or directory that would make another directory a git directory,
	// whatever the order of the entries: their content can make git run commands. It is called once
	// with the name of each, relative to dst. A tree with more than 10,000 files called HEAD is
	// env.ErrTreeTooLarge then.
	SkipRepositories func(name string)
}

// Download copies the slash-separated names in the directory dir of an environment, or its whole
// tree without names, into the directory dst of the host; dir/x becomes dst/x. It makes a
// missing dst, replaces existing files and keeps others. An empty dir means the working directory.
// A missing name is fs.ErrNotExist.
//
// The environment is not trusted. A name out of dst, a symlink out of dst, and an entry below a
// symlink end the download with env.ErrEscapes, a device or a FIFO with another error, and a tree
// beyond the limits of opts with env.ErrTreeTooLarge. Nothing outside dst is changed. The setuid,
// setgid and sticky bits are dropped. After an error dst may have a part of the tree.
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
		unpack.Skip = func(name string) bool {
			return found.isTop() || found.contains(name) || found.completes(name)
		}
		unpack.Hold, unpack.Keep, unpack.MaxHeld = isHead, found.keepHead, maxHeads
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
