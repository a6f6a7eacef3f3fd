package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// filesTime is how long a host may take to start what serves files.
	filesTime = 5 * time.Second
	// sftpRequests is how many requests for one file are on their way at once.
	sftpRequests = 64
	// pieceSize is how much of a file is asked for at once.
	pieceSize = 1 << 20
)

// files moves the content of files by SFTP. It implements portable.Files.
type files struct {
	shells *shells
	note   func(line string)

	opening chan struct{} // held while a client is opened
	mu      sync.Mutex
	client  *sftp.Client
	end     func() // ends its session
	off     error  // why there is none, and will be none
	slow    int    // how often it did not come in time
}

func newFiles(s *shells, note func(string)) *files {
	return &files{shells: s, note: note, opening: make(chan struct{}, 1)}
}

// get returns the client, which it opens where there is none.
func (f *files) get(ctx context.Context) (*sftp.Client, error) {
	select {
	case f.opening <- struct{}{}:
		defer func() { <-f.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	client, off := f.client, f.off
	f.mu.Unlock()
	if client != nil || off != nil {
		return client, off
	}
	limited, cancel := context.WithTimeout(ctx, filesTime)
	defer cancel()
	client, end, err := f.open(limited)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && f.off != nil: // closed meanwhile
		end()
		return nil, f.off
	case err == nil:
		f.client, f.end = client, end
		go f.watch(client, end)
		return client, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case f.shells.isLost():
		return nil, env.ErrGone
	}
	if limited.Err() != nil { // a slow moment says nothing of the next one
		if f.slow++; f.slow < maxSlow {
			return nil, fmt.Errorf("no SFTP: %w", errors.ErrUnsupported)
		}
	}
	f.off = fmt.Errorf("no SFTP: %w", errors.ErrUnsupported)
	f.note("the host serves no files by SFTP (" + cleanText(err.Error()) + "); everything goes through its shell")
	return nil, f.off
}

// open starts what serves files on the host.
func (f *files) open(ctx context.Context) (*sftp.Client, func(), error) {
	c, err := f.shells.host.openSFTP(ctx, sftp.UseConcurrentWrites(true), sftp.MaxConcurrentRequestsPerFile(sftpRequests))
	if err != nil {
		return nil, nil, err
	}
	return c.Client, sync.OnceFunc(func() { _ = c.session.Close() }), nil // whatever it says
}

// watch forgets a client that is lost.
func (f *files) watch(client *sftp.Client, end func()) {
	_ = client.Wait() // that it ended is all there is to know
	end()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client == client {
		f.client = nil
	}
}

// close ends the client.
func (f *files) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = fs.ErrClosed
	if f.client != nil {
		f.end()
		f.client = nil
	}
}

// openFile opens a file.
func (f *files) openFile(ctx context.Context, name string, flags int) (*sftp.File, error) {
	client, err := f.get(ctx)
	if err != nil {
		return nil, err
	}
	return await(ctx, func() (*sftp.File, error) { return client.OpenFile(name, flags) }, func(file *sftp.File) { _ = file.Close() })
}

// maxSlow is after how many attempts that took too long none is made any more.
const maxSlow = 3

// await calls open and waits for it until ctx ends. What comes later is dropped.
func await[T any](ctx context.Context, open func() (T, error), drop func(T)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := open()
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				drop(r.got)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}

// Write implements portable.Files. The file has a name that a shell has just made, so that one that is not there for SFTP is
// somewhere else.
func (f *files) Write(ctx context.Context, name string, r io.Reader) (int64, error) {
	file, err := f.openFile(ctx, name, os.O_WRONLY)
	if err != nil && ctx.Err() == nil {
		return 0, fmt.Errorf("write by SFTP: %w: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return 0, err
	}
	return await(ctx, func() (int64, error) {
		s := &source{r: r}
		n, err := file.ReadFromWithConcurrency(s, sftpRequests)
		if s.err != nil {
			err = s.err
		}
		return n, errors.Join(err, file.Close())
	}, func(int64) {})
}

// source keeps the error of a reader from those who take one that wraps io.EOF for the end.
type source struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
		err = errSource
	}
	return n, err
}

// errSource stands for the error of a source.
var errSource = errors.New("the content cannot be read")

// Open implements portable.Files.
func (f *files) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := f.openFile(ctx, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	d := &download{ctx: ctx, cancel: cancel, pieces: make(chan piece)}
	go d.fetch(file)
	return d, nil
}

// download is the content of a file. One piece of it comes in while another one is read.
type download struct {
	ctx    context.Context //nolint:containedctx // It bounds the reading of what it opened.
	cancel context.CancelCauseFunc
	pieces chan piece
	piece  piece
}

// piece is what one request gave.
type piece struct {
	data []byte
	err  error
}

// fetch reads the file until its end, or until nobody wants more.
func (d *download) fetch(file *sftp.File) {
	defer file.Close() //nolint:errcheck // It was read, or nobody wants it.
	bufs := [3][]byte{}
	for i := 0; ; i = (i + 1) % len(bufs) {
		if bufs[i] == nil {
			bufs[i] = make([]byte, pieceSize)
		}
		n, err := file.Read(bufs[i])
		select {
		case d.pieces <- piece{bufs[i][:n], err}:
		case <-d.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	for len(d.piece.data) == 0 {
		if d.piece.err != nil {
			return 0, d.piece.err
		}
		select {
		case d.piece = <-d.pieces:
		case <-d.ctx.Done():
			return 0, context.Cause(d.ctx)
		}
	}
	n := copy(p, d.piece.data)
	d.piece.data = d.piece.data[n:]
	return n, nil
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.cancel(fs.ErrClosed)
	return nil
}
