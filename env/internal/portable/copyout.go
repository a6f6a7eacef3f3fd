package portable

import (
	"archive/tar"
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

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

const (
	// maxNames bounds the names that tar gets at once.
	maxNames = 64 << 10
	// gnuTar is an option that tells the tar of GNU from others.
	gnuTar = "tar --hard-dereference"
)

// CopyOut implements env.Environment. The tar of the place packs the files that were found before, in their order; a file
// that comes or goes meanwhile is as it was, or an error. Of what a place sends, only the entries that were asked for are
// passed on. A name that passes through a link is refused, wherever the link leads.
func (e *Environment) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	full, err := e.resolve(dir)
	if err == nil {
		err = e.facts.needs("tar")
	}
	if err == nil {
		err = e.begin(ctx)
	}
	if err != nil {
		return nil, pathError("copyout", dir, err)
	}
	p := &packing{e: e, dir: full}
	if err := p.list(ctx, names); err != nil {
		e.work.Done()
		return nil, pathError("copyout", dir, err)
	}
	r, w := io.Pipe()
	inner, cancel := e.while(ctx)
	go func() {
		defer e.work.Done()
		defer cancel()
		// Whoever reads may have stopped reading.
		stop := context.AfterFunc(inner, func() { _ = w.CloseWithError(pathError("copyout", dir, ended(inner))) })
		defer stop()
		err := p.run(inner, w)
		if err != nil && inner.Err() != nil {
			err = ended(inner)
		}
		_ = w.CloseWithError(pathError("copyout", dir, err)) // never fails
	}()
	return &archive{PipeReader: r, cancel: cancel}, nil
}

// archive is the stream that CopyOut returns.
type archive struct {
	*io.PipeReader
	cancel func()
	once   sync.Once
}

// Close implements io.Closer.
func (a *archive) Close() error {
	a.once.Do(a.cancel)
	return a.CloseWithError(fs.ErrClosed)
}

// packing is one call of CopyOut.
type packing struct {
	e       *Environment
	dir     string
	entries []item
}

// item is a file, folder or link to pack.
type item struct {
	name string
	mode fs.FileMode
}

// list finds what is to be packed, in the order of the archive.
func (p *packing) list(ctx context.Context, names []string) error {
	if code, text, err := p.e.ask(ctx, operation{body: "sa_root " + quote(p.dir)}); err != nil || code != codeOK {
		if err == nil {
			err = errCode(code, text)
		}
		return err
	}
	root := strings.TrimSuffix(p.dir, "/") + "/"
	if len(names) == 0 {
		names = []string{"."}
	}
	found := make(map[string]fs.FileMode)
	for _, name := range names {
		clean, err := cleanName(name)
		if err != nil {
			return &fs.PathError{Op: "open", Path: name, Err: err}
		}
		if err := p.find(ctx, root, clean, found); err != nil {
			return pathError("open", name, err)
		}
	}
	for name, mode := range found {
		p.entries = append(p.entries, item{name, mode})
	}
	slices.SortFunc(p.entries, func(a, b item) int {
		return slices.Compare(strings.Split(a.name, "/"), strings.Split(b.name, "/"))
	})
	return nil
}

// find adds a name and all below it to found.
func (p *packing) find(ctx context.Context, root, clean string, found map[string]fs.FileMode) error {
	mark := newMark()
	full := root + clean
	if clean == "." {
		full = root
	}
	var check strings.Builder
	for dir := path.Dir(clean); dir != "." && dir != "/"; dir = path.Dir(dir) {
		check.WriteString("if [ -L " + quote(root+dir) + " ]; then (exit 12); el")
	}
	body := "sa_tree " + quote(full) + " " + mark
	if check.Len() > 0 {
		body = strings.TrimSuffix(check.String(), "el") + "else " + body + "; fi"
	}
	out := collect{max: maxLinks}
	code, text, err := p.e.ask(ctx, operation{body: body, out: out.add})
	switch {
	case err != nil:
		return err
	case code == 12:
		return fmt.Errorf("%w: the name passes through a link", tartree.ErrEscapes)
	case code != codeOK:
		return errCode(code, text)
	}
	return eachLine(out.data, mark, func(line string) error {
		digits, name, ok := strings.Cut(line, " ")
		mode, err := strconv.ParseUint(digits, 16, 32)
		relative, inside := strings.CutPrefix(name+"/", root)
		if !ok || err != nil || !inside {
			return fmt.Errorf("%w: malformed status %.100q", env.ErrProtocol, line)
		}
		relative = strings.Trim(relative, "/")
		if relative == "" {
			return nil
		}
		if c, err := cleanName(relative); err != nil || c != relative {
			return fmt.Errorf("%w: entry %.100q", env.ErrProtocol, name)
		}
		found[relative] = parseMode(uint32(mode))
		return nil
	})
}

// run packs the entries, some at a time.
func (p *packing) run(ctx context.Context, w io.Writer) error {
	out := tar.NewWriter(w)
	for rest := p.entries; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size+len(rest[n].name) < maxNames) {
			size += len(rest[n].name) + 5
			n++
		}
		if err := p.pack(ctx, out, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return out.Close()
}

// pack has tar pack entries, and checks and copies what it sends.
func (p *packing) pack(ctx context.Context, out *tar.Writer, entries []item) error {
	var command strings.Builder
	command.WriteString("sa_tar -cf - -C " + quote(p.dir) + " --no-recursion")
	if p.e.facts.has[gnuTar] {
		command.WriteString(" --format=posix --hard-dereference --no-unquote")
	}
	for _, entry := range entries {
		command.WriteString(" " + quote("./"+entry.name))
	}
	if err := p.e.begin(ctx); err != nil {
		return err
	}
	s, err := p.e.stream(ctx, operation{body: command.String()})
	if err != nil {
		return err
	}
	defer s.close()
	var missing []item
	in := tartree.NewReader(ctx, &streamReader{stream: s})
	for {
		h, err := in.Next()
		if err == io.EOF { //nolint:errorlint // A failure that wraps io.EOF is no end.
			return p.complete(ctx, s, append(missing, entries...))
		}
		if err != nil {
			return err
		}
		name := strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")
		at := slices.IndexFunc(entries, func(i item) bool { return i.name == name })
		if at < 0 {
			return fmt.Errorf("%w: unexpected entry %.100q", env.ErrProtocol, h.Name)
		}
		missing, entries = append(missing, entries[:at]...), entries[at+1:]
		if err := p.entry(ctx, out, in, h, name); err != nil {
			return err
		}
	}
}

// complete checks the end of an archive, which files may be missing from that have gone meanwhile.
func (p *packing) complete(ctx context.Context, s *stream, missing []item) error {
	for _, entry := range missing {
		code, _, err := p.e.ask(ctx, operation{body: "[ -e " + quote(p.dir+"/"+entry.name) + " ] || [ -L " + quote(p.dir+"/"+entry.name) + " ]"})
		if err != nil {
			return err
		}
		if code == codeOK {
			return pathError("open", entry.name, errors.Join(s.err, io.ErrUnexpectedEOF))
		}
	}
	if len(missing) == 0 {
		return s.err
	}
	return nil
}

// entry copies one entry.
func (p *packing) entry(ctx context.Context, out *tar.Writer, in io.Reader, h *tar.Header, name string) error {
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o7777, ModTime: h.ModTime, Format: tar.FormatPAX}
	content := in
	switch h.Typeflag {
	case tar.TypeDir:
		clean.Name += "/"
	case tar.TypeSymlink:
		clean.Linkname = h.Linkname
	case tar.TypeReg:
		clean.Size = h.Size
	case tar.TypeLink: // which becomes a file of its own
		f, err := p.e.Open(ctx, p.dir+"/"+name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		clean.Typeflag, clean.Size, clean.Mode, content = tar.TypeReg, info.Size(), int64(info.Mode().Perm()), f
	default:
		return fmt.Errorf("%w: entry %.100q of type %q", env.ErrProtocol, name, h.Typeflag)
	}
	if err := out.WriteHeader(clean); err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	if clean.Typeflag == tar.TypeReg {
		if _, err := io.CopyN(out, content, clean.Size); err != nil {
			return fmt.Errorf("pack %q: %w", name, err)
		}
	}
	return nil
}

// streamReader reads a stream to its end, also if the operation failed.
type streamReader struct {
	stream *stream
	buffer []byte
}

func (r *streamReader) Read(p []byte) (int, error) {
	for len(r.buffer) == 0 {
		r.buffer = r.buffer[:0]
		err := r.stream.read(&r.buffer)
		if r.stream.ended {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buffer)
	r.buffer = r.buffer[n:]
	return n, nil
}
