// Package transfer copies directory trees between the host and an environment: [Upload] and
// [Download].
package transfer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// UploadOptions are options of Upload. The zero value uploads the whole source.
type UploadOptions struct {
	// Names are slash-separated names relative to the source directory, of files or of directories
	// with their trees, to upload; none means all. A name that leaves the directory is env.ErrEscapes,
	// a missing one fs.ErrNotExist. They are an error if the source is a file.
	Names []string
	// SkipRepositories, if set, leaves out the directories and files of version control systems below
	// the source, as DownloadOptions.SkipRepositories does: they may contain credentials. It is called
	// once with the name of each, relative to the source. The source itself is uploaded even if it is
	// such a directory.
	SkipRepositories func(name string)
}

// Upload copies src, a file or directory of the host, into the directory dir of an environment, and
// makes a missing dir; an empty dir means the working directory. It copies the entries of a
// directory, so that src/x becomes dir/x; a file keeps its base name. It follows src if that is a
// symlink, copies symlinks below it as symlinks, whatever their targets, and leaves out sockets,
// FIFOs and devices. It reads nothing outside src, even if the tree changes meanwhile.
//
// The data is streamed, in one round trip and in bounded memory. After an error dir may have a part
// of the tree.
func Upload(ctx context.Context, e env.Copier, src, dir string, opts UploadOptions) error {
	dir = cmp.Or(dir, ".")
	pack, closeSource, err := openSource(src, opts)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	defer closeSource()

	packErr, copyErr := tartree.Send(ctx, e, dir, pack)
	switch {
	case packErr != nil:
		return fmt.Errorf("upload %s: %w", src, packErr)
	case copyErr != nil:
		return fmt.Errorf("upload %s to %s: %w", src, dir, copyErr)
	}
	return nil
}

// openSource opens the source and returns a function that packs it.
func openSource(
	src string, opts UploadOptions,
) (pack func(context.Context, io.Writer) error, closeSource func(), err error) {
	fi, err := os.Stat(src)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case fi.IsDir():
		root, err := os.OpenRoot(src)
		if err != nil {
			return nil, nil, err
		}
		packing := tartree.PackOptions{Names: opts.Names}
		if opts.SkipRepositories != nil {
			packing.Skip = findRepositories(root, opts.SkipRepositories).contains
		}
		return func(ctx context.Context, w io.Writer) error {
			return tartree.Pack(ctx, w, root, packing)
		}, func() { _ = root.Close() }, nil
	case len(opts.Names) > 0:
		return nil, nil, &os.PathError{Op: "open", Path: src, Err: env.ErrNotDir}
	case !fi.Mode().IsRegular():
		return nil, nil, &os.PathError{Op: "open", Path: src, Err: env.ErrNotRegular}
	}
	f, err := os.Open(src)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, w io.Writer) error {
		return tartree.PackFile(ctx, w, f, filepath.Base(src))
	}, func() { _ = f.Close() }, nil
}
