package portable

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
)

// largeFile is how long the content of a file may be to go through shells where there is a way past them. What is longer holds
// a shell while it is read, and is slower to write.
const largeFile = wholeFile

// Files moves the content of large files by another way than through shells. An error that wraps errors.ErrUnsupported means
// that this is not possible, and that nothing has been done. Names are absolute.
type Files interface {
	// Open opens a file for reading. The reader ends with ctx. Its Close ends a Read that waits.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Write replaces the content of a file that is there with what r gives. It does not wait for a Read after ctx has ended.
	Write(ctx context.Context, name string, r io.Reader) (int64, error)
}

// sizeFunction answers like sa_open, without the content if that is large.
const sizeFunction = `sa_size() {
sa_file "$1" || return $?
sa_k=$(sa_look "$1") || return 9
echo "$sa_k"
sa_k=${sa_k#* }
[ "${sa_k%% *}" -gt $2 ] || cat -- "$1" || return 9
}
`

// isDirect reports whether there is a way past the shells. It is tried once: what serves files may have other names for
// them than shells have.
func (e *Environment) isDirect(ctx context.Context) bool {
	if e.cfg.Files == nil {
		return false
	}
	select {
	case e.checking <- struct{}{}:
		defer func() { <-e.checking }()
	case <-ctx.Done():
		return false
	}
	if !e.checked {
		ok, err := e.tryFiles(ctx)
		if err != nil {
			return false // it may be another time
		}
		e.checked, e.direct = true, ok
	}
	return e.direct
}

// tryFiles has a shell write a file with a name and a content that nobody can know, and reads it by the other way.
func (e *Environment) tryFiles(ctx context.Context) (bool, error) {
	ctx, cancel := e.while(ctx)
	defer cancel()
	name, content := e.pool.base+"/"+newMark(), newMark()
	body := "mkdir -p -m 700 " + quote(path.Dir(name)) + " && (umask 077 && printf %s " + content + " >" + quote(name) + ")"
	if code, text, err := e.ask(ctx, operation{body: body}); err != nil || code != codeOK {
		return false, errors.Join(err, errCode(code, text))
	}
	defer func() { _ = e.warden.inTime(operation{body: "rm -f -- " + quote(name) + "\n:"}) }() // Close does it, too
	r, err := e.cfg.Files.Open(ctx, name)
	if err != nil {
		return false, ctx.Err()
	}
	defer r.Close() //nolint:errcheck // It was read.
	got, err := io.ReadAll(io.LimitReader(r, maxStatus))
	if err != nil {
		return false, ctx.Err()
	}
	return string(got) == content, nil
}

// openLarge opens a large file past the shells.
func (e *Environment) openLarge(ctx context.Context, name, full string, info *fileInfo) (*file, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := e.while(ctx)
	end := func() {
		cancel()
		e.work.Done()
	}
	r, err := e.cfg.Files.Open(ctx, full)
	if err != nil {
		err = cut(ctx, err)
		end()
		return nil, err
	}
	return &file{name: name, info: info, stream: &direct{e: e, ctx: ctx, r: r, end: end}}, nil
}

// direct is the content of a file that comes past the shells.
type direct struct {
	e     *Environment
	ctx   context.Context //nolint:containedctx // It bounds the reading of what it opened.
	r     io.ReadCloser
	piece []byte
	done  bool
	over  bool
	end   func()
}

func (d *direct) read(buffer *[]byte) error {
	if d.piece == nil {
		d.piece = make([]byte, scanSize)
	}
	n, err := d.r.Read(d.piece)
	*buffer = append(*buffer, d.piece[:n]...)
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		d.over = true
		return nil
	case d.ctx.Err() != nil:
		return ended(d.ctx)
	}
	return d.e.lost(d.ctx, err)
}

func (d *direct) isOver() bool { return d.over }

func (d *direct) interrupt() { _ = d.r.Close() } // nobody reads any more

func (d *direct) close() {
	if !d.done {
		d.done = true
		_ = d.r.Close() // all was read, or nobody wants it
		d.end()
	}
}

// upload sends the content past the shells to the file that is written first.
func (w *writing) upload(ctx context.Context, r io.Reader, staged string) error {
	n, err := w.e.cfg.Files.Write(ctx, staged, io.MultiReader(strings.NewReader(w.buffer.String()), source(r)))
	if err == nil {
		w.size = n
		return nil
	}
	switch {
	case w.e.isClosed():
		return fs.ErrClosed
	case ctx.Err() != nil:
		return ended(ctx)
	}
	var source *sourceError
	switch {
	case errors.As(err, &source):
		return source.err
	case errors.Is(err, errors.ErrUnsupported):
		return err
	}
	// What serves files does not say that a disk is full, but a shell that tries the same does.
	if _, why := w.ask(ctx, operation{body: "head -c 1048576 /dev/zero >>" + quote(staged) + " || (exit 9)"}); why != nil {
		return why
	}
	return w.e.lost(ctx, err)
}

// sourceError is a failure of the reader that gives the content.
type sourceError struct{ err error }

func (s *sourceError) Error() string { return s.err.Error() }

// source returns a reader of what r gives whose failures are told from those of the place.
func source(r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err != nil && err != io.EOF {
			err = &sourceError{err}
		}
		return n, err
	})
}
