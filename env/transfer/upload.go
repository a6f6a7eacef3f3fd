// Package transfer copies trees between the host and an environment.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// UploadOptions are options of Upload. The zero value uploads everything.
type UploadOptions struct {
	// Names are slash-separated names relative to the source folder, files or whole folders; only
	// these are uploaded. None means everything. A name that leaves the folder is ErrEscapes, a
	// missing one fs.ErrNotExist. With a source that is a file they are not allowed.
	Names []string
	// SkipRepositories, if set, leaves out what is below the source folder and belongs to version
	// control, as that of DownloadOptions does: credentials stand in it. It is called with the name of
	// each, relative to the source. The source itself may be such a folder, and is uploaded.
	SkipRepositories func(name string)
}

// Upload copies src, a file or folder of the host, into the folder dir of an environment, which is
// made if missing; an empty dir is the working directory. Of a folder the contents are copied, so
// that src/x becomes dir/x; a file keeps its base name. If src itself is a symbolic link, it is
// followed; links below a folder are copied as links, wherever they point. Sockets, pipes and
// devices below it are left out. Nothing is read outside src, whatever changes there meanwhile.
//
// The data is streamed, in one round trip and in bounded memory. After an error a part of the tree
// may be there.
func Upload(ctx context.Context, e env.Copier, src, dir string, opts UploadOptions) error {
	dir = cmp.Or(dir, ".")
	pack, closeSource, err := openSource(src, opts)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	defer closeSource()

	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, pw)
		pw.CloseWithError(err)
		packed <- err
	}()
	copyErr := e.CopyIn(ctx, dir, pr)
	pr.CloseWithError(errReaderDone)
	packErr := <-packed
	// A failure to read the source reaches CopyIn too, which may wrap it in its own words. That CopyIn
	// ended before the packer is no failure of the packer.
	if packErr != nil && !errors.Is(packErr, errReaderDone) {
		return fmt.Errorf("upload %s: %w", src, packErr)
	}
	if copyErr != nil {
		return fmt.Errorf("upload %s to %s: %w", src, dir, copyErr)
	}
	return nil
}

// errReaderDone ends the packer when the environment reads no more.
var errReaderDone = errors.New("the environment stopped reading")

// openSource opens what is to be uploaded and returns how to pack it.
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
			packing.Skip = findRepositories(root, opts.SkipRepositories).holds
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
