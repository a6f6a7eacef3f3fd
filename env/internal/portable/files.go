package portable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// wholeFile is how much of a file Open reads at once. What is larger holds a shell until it is closed.
	wholeFile = 4 << 20
	// maxFolder bounds what a place says about one folder.
	maxFolder = 64 << 20
	// maxStatus bounds the line that describes a file.
	maxStatus = 512
)

// fileInfo describes a file.
type fileInfo struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
}

func (i *fileInfo) Name() string       { return i.name }
func (i *fileInfo) Size() int64        { return i.size }
func (i *fileInfo) Mode() fs.FileMode  { return i.mode }
func (i *fileInfo) ModTime() time.Time { return i.time }
func (i *fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i *fileInfo) Sys() any           { return nil }

// parseInfo parses mode, size, and time as seconds and as a date, whose fraction is what counts.
func parseInfo(name, line string) (*fileInfo, error) {
	fields := strings.Fields(line)
	if len(fields) >= 5 {
		mode, err0 := strconv.ParseUint(fields[0], 16, 32)
		size, err1 := strconv.ParseInt(fields[1], 10, 64)
		seconds, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err0 == nil && err1 == nil && err2 == nil && size >= 0 {
			var nanos int64
			if _, fraction, ok := strings.Cut(fields[4], "."); ok && len(fraction) == 9 {
				nanos, _ = strconv.ParseInt(fraction, 10, 64) // else whole seconds are all that is known
			}
			return &fileInfo{name: name, size: size, mode: parseMode(uint32(mode)), time: time.Unix(seconds, nanos)}, nil
		}
	}
	return nil, fmt.Errorf("%w: malformed status %.100q", env.ErrProtocol, line)
}

// parseMode returns a mode as Linux has it.
func parseMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & 0o170000 {
	case 0o040000:
		m |= fs.ModeDir
	case 0o120000:
		m |= fs.ModeSymlink
	case 0o010000:
		m |= fs.ModeNamedPipe
	case 0o140000:
		m |= fs.ModeSocket
	case 0o060000:
		m |= fs.ModeDevice
	case 0o020000:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case 0o100000:
	default:
		m |= fs.ModeIrregular
	}
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}

// query runs a short operation about name and returns what it prints.
func (e *Environment) query(ctx context.Context, op, name string, limit int, body func(full string) string) ([]byte, error) {
	full, err := e.resolve(name)
	if err == nil {
		err = e.begin(ctx)
	}
	if err != nil {
		return nil, pathError(op, name, err)
	}
	defer e.work.Done()
	out := collect{max: limit}
	code, text, err := e.ask(ctx, operation{body: body(full), out: out.add})
	if err == nil && code != codeOK {
		err = errCode(code, text)
	}
	return out.data, pathError(op, name, err)
}

// Stat implements env.Environment.
func (e *Environment) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	out, err := e.query(ctx, "stat", name, maxStatus, func(full string) string { return "sa_stat " + quote(full) })
	if err != nil {
		return nil, err
	}
	info, err := parseInfo(path.Base(name), string(out))
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return info, nil
}

// ReadDir implements env.Environment.
func (e *Environment) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	mark := newMark()
	var root string
	out, err := e.query(ctx, "readdir", name, maxFolder, func(full string) string {
		root = strings.TrimSuffix(full, "/") + "/"
		return "sa_dir " + quote(full) + " " + mark
	})
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	err = eachLine(out, mark, func(line string) error {
		fields := strings.SplitN(line, " ", 7)
		if len(fields) < 7 {
			return fmt.Errorf("%w: malformed status %.100q", env.ErrProtocol, line)
		}
		base, ok := strings.CutPrefix(fields[6], root)
		if !ok || base == "" || base == "." || base == ".." || strings.ContainsAny(base, "/\x00") {
			return fmt.Errorf("%w: entry %.100q", env.ErrProtocol, fields[6])
		}
		info, err := parseInfo(base, strings.Join(fields[:5], " "))
		if err == nil {
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
		return err
	})
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// eachLine calls f for each line of out. A line begins with mark and a blank, which only its first may do, and ends with a
// newline, which it may hold as well.
func eachLine(out []byte, mark string, f func(line string) error) error {
	for rest := out; len(rest) > 0; {
		line, ok := bytes.CutPrefix(rest, []byte(mark+" "))
		if !ok {
			return fmt.Errorf("%w: a line without its mark", env.ErrProtocol)
		}
		end := bytes.Index(line, []byte("\n"+mark+" "))
		if end < 0 {
			end = len(line) - 1
		}
		if end < 0 || line[end] != '\n' {
			return fmt.Errorf("%w: a line without end", env.ErrProtocol)
		}
		if err := f(string(line[:end])); err != nil {
			return err
		}
		rest = line[end+1:]
	}
	return nil
}

// Remove implements env.Environment.
func (e *Environment) Remove(ctx context.Context, name string, opts env.RemoveOptions) error {
	recursive := "0"
	if opts.Recursive {
		recursive = "1"
	}
	_, err := e.query(ctx, "remove", name, maxStatus, func(full string) string { return "sa_rm " + quote(full) + " " + recursive })
	return err
}

// Open implements env.Environment. A file of more than 4 MiB takes a shell until it has been read or closed; when there are
// too many of these, Open waits.
func (e *Environment) Open(ctx context.Context, name string) (fs.File, error) {
	full, err := e.resolve(name)
	if err == nil {
		err = e.begin(ctx)
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	f, err := e.open(ctx, name, full)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

func (e *Environment) open(ctx context.Context, name, full string) (*file, error) {
	body, large := "sa_open "+quote(full), e.isDirect(ctx)
	if large {
		body = sizeFunction + "sa_size " + quote(full) + " " + strconv.Itoa(largeFile)
	}
	f, err := e.openStream(ctx, name, body)
	if err != nil || !large || f.info.size <= largeFile {
		return f, err
	}
	info := f.info
	f.stream.close()
	if f, err = e.openLarge(ctx, name, full, info); err == nil || ctx.Err() != nil {
		return f, err
	}
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	return e.openStream(ctx, name, "sa_open "+quote(full))
}

// openStream opens a file with the operation that prints what it is, and its content.
func (e *Environment) openStream(ctx context.Context, name, body string) (*file, error) {
	s, err := e.stream(ctx, operation{body: body})
	if err != nil {
		return nil, err
	}
	f := &file{name: name, stream: s}
	line, err := f.head()
	if err == nil {
		f.info, err = parseInfo(path.Base(name), line)
	}
	for err == nil && len(f.buffer) < wholeFile && !s.ended {
		err = s.read(&f.buffer)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	if s.ended {
		s.close()
	}
	return f, nil
}

// file is an open file.
type file struct {
	name   string
	info   *fileInfo
	mu     sync.Mutex
	stream content
	buffer []byte // what has been read from the stream and not by the caller
	closed bool
}

// content is where the content of an open file comes from.
type content interface {
	// read appends the next piece to buffer.
	read(buffer *[]byte) error
	// isOver reports whether nothing more comes.
	isOver() bool
	// interrupt ends a read that waits. It may be called at any time.
	interrupt()
	// close ends the call. It may be called more than once.
	close()
}

// head reads the line in front of the content.
func (f *file) head() (string, error) {
	for {
		if i := bytes.IndexByte(f.buffer, '\n'); i >= 0 {
			line := string(f.buffer[:i])
			f.buffer = f.buffer[i+1:]
			return line, nil
		}
		if len(f.buffer) > maxStatus || f.stream.isOver() {
			return "", fmt.Errorf("%w: a file without status", env.ErrProtocol)
		}
		if err := f.stream.read(&f.buffer); err != nil {
			return "", err
		}
	}
}

// Stat implements fs.File. It describes the file as it was when it was opened.
func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f *file) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.buffer) == 0 {
		if f.stream.isOver() {
			f.stream.close()
			return 0, io.EOF
		}
		f.buffer = nil
		if err := f.stream.read(&f.buffer); err != nil {
			return 0, pathError("read", f.name, err)
		}
	}
	n := copy(p, f.buffer)
	f.buffer = f.buffer[n:]
	return n, nil
}

// Close implements fs.File.
func (f *file) Close() error {
	f.stream.interrupt() // a Read that waits
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed, f.buffer = true, nil
	f.stream.close()
	return nil
}

// stream is the output of an operation that is read piece by piece.
type stream struct {
	e       *Environment
	ctx     context.Context //nolint:containedctx // It bounds the reading of what it opened.
	cancel  context.CancelFunc
	stop    func() bool
	shell   *shell
	mark    string
	code    chan error // the operation's messages have ended
	text    *limited
	ended   bool // with success
	sound   bool // and the contact with the shell has not been ended
	err     error
	release func()
}

// stream starts an operation whose output is read by the caller of read. The call is registered already; an error or close
// ends it.
func (e *Environment) stream(ctx context.Context, o operation) (*stream, error) {
	sh, err := e.pool.take(ctx, e.done, true)
	if err != nil {
		e.work.Done()
		return nil, err
	}
	s := &stream{e: e, shell: sh, mark: newMark(), code: make(chan error, 1), text: new(limited)}
	o.mark = s.mark
	s.ctx, s.cancel = e.while(ctx)
	s.stop = context.AfterFunc(s.ctx, sh.abandon)
	s.release = sync.OnceFunc(s.finish)
	go func() { _, _ = io.WriteString(sh.raw.Stdin, o.script()) }() // a loss shows in what the shell says
	go func() {
		_, err := sh.stderr.until(s.mark, s.text.add, nil)
		if err != nil {
			sh.abandon()
		}
		s.code <- err
	}()
	return s, nil
}

// read appends the next piece to buffer, or sets ended.
func (s *stream) read(buffer *[]byte) error {
	if s.err != nil || s.ended {
		return s.err
	}
	data, rec, err := s.shell.stdout.next(s.mark)
	switch {
	case err == nil && rec.kind == 0:
		*buffer = append(*buffer, data...)
		return nil
	case err == nil && rec.kind != 'e':
		err = fmt.Errorf("%w: unexpected record %q", env.ErrProtocol, rec.kind)
	case err == nil:
		if err = <-s.code; err == nil {
			s.ended, s.sound = true, s.stop()
			if rec.a != codeOK {
				s.err = errCode(rec.a, s.text.String())
			}
			return s.err
		}
	}
	if s.ctx.Err() != nil {
		err = ended(s.ctx)
	} else {
		err = s.e.lost(s.ctx, err)
	}
	s.err = err
	return err
}

// interrupt ends a read that waits, unless there is nothing to wait for.
func (s *stream) interrupt() { s.cancel() }

// isOver implements content.
func (s *stream) isOver() bool { return s.ended }

// close ends the operation and the call.
func (s *stream) close() { s.release() }

func (s *stream) finish() {
	s.stop()
	if !s.ended {
		s.e.bury(s.shell, nil, false)
		if s.err == nil {
			s.err = errors.New("the stream was closed")
		}
	}
	s.cancel()
	s.e.pool.give(s.shell, true, s.sound)
	s.e.work.Done()
}
