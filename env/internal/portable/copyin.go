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
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/tartree"
)

// maxLinks bounds what a place says about links and trees.
const maxLinks = 256 << 20

// CopyIn implements env.Environment. The tar of the place unpacks what this side has checked entry by entry; an entry
// whose name passes through a link, one in the place or one of the archive, is refused, wherever the link leads.
func (e *Environment) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	full, err := e.resolve(dir)
	if err == nil {
		err = e.facts.needs("tar")
	}
	if err == nil {
		err = e.begin(ctx)
	}
	if err != nil {
		return pathError("copyin", dir, err)
	}
	defer e.work.Done()
	return pathError("copyin", dir, e.unpack(ctx, full, archive))
}

// unpack lists the links that are there, and sends the archive to a tar.
func (e *Environment) unpack(ctx context.Context, full string, archive io.Reader) error {
	out := collect{max: maxLinks}
	code, text, err := e.ask(ctx, operation{body: "sa_links " + quote(full), out: out.add})
	if err == nil && code != codeOK {
		err = errCode(code, text)
	}
	if err != nil {
		return err
	}
	f := &filter{links: make(map[string]bool), files: make(map[string]bool), modes: make(map[string]fs.FileMode), format: tar.FormatGNU}
	if e.facts.has[gnuTar] {
		f.format = tar.FormatPAX
	}
	for name := range strings.SplitSeq(string(out.data), "\x00") {
		if name, ok := strings.CutPrefix(name, strings.TrimSuffix(full, "/")+"/"); ok {
			f.links[strings.TrimLeft(name, "/")] = true
		}
	}
	s, err := e.pool.take(ctx, e.done, true)
	if err != nil {
		return err
	}
	inner, cancel := e.while(ctx)
	defer cancel()
	partial, err := e.send(inner, s, full, f, archive)
	e.pool.give(s, true, false)
	if err == nil {
		err = e.settle(ctx, full, f)
	}
	if partial != "" {
		name := strings.TrimSuffix(full, "/") + "/" + partial
		_ = e.warden.inTime(operation{body: "rm -f -- " + quote(name) + "\n:"}) // the error is known
	}
	return err
}

// settle gives permissions that a tar other than that of GNU leaves out: what the umask takes away from files, and those of
// folders that were there before.
func (e *Environment) settle(ctx context.Context, full string, f *filter) error {
	if f.format == tar.FormatPAX {
		return nil
	}
	var names []string
	for name, mode := range f.modes {
		if (mode.IsDir() || mode&fs.FileMode(e.facts.umask) != 0) && !f.links[name] {
			names = append(names, name)
		}
	}
	// What is in a folder comes before it, because a mode may take away the right to get there.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	for len(names) > 0 {
		mode := f.modes[names[0]].Perm()
		body := fmt.Sprintf("(cd -P -- %s && chmod %o --", quote(full), mode)
		n := 0
		for n < min(len(names), 100) && f.modes[names[n]].Perm() == mode {
			body += " " + quote("./"+names[n])
			n++
		}
		names = names[n:]
		code, text, err := e.ask(ctx, operation{body: body + ") || (exit 9)"})
		if err == nil && code != codeOK {
			err = errCode(code, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send runs tar in s. It returns the name of a file of which not all has come.
func (e *Environment) send(ctx context.Context, s *shell, full string, f *filter, archive io.Reader) (partial string, err error) {
	input, output := io.Pipe()
	type answer struct {
		code int
		text string
		err  error
	}
	answers := make(chan answer, 1)
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		var a answer
		a.code, a.text, a.err = s.run(ctx, operation{body: "sa_tar -xpof - -C " + quote(full), input: input, last: true})
		_ = input.CloseWithError(errStopped) // never fails
		stop(errStopped)
		answers <- a
	}()
	partial, err = f.copy(reading, output, interruptible(reading, archive))
	_ = output.Close() // never fails
	a := <-answers
	switch {
	case ctx.Err() != nil:
		e.bury(s, nil, false)
		return partial, ended(ctx)
	case err != nil && !errors.Is(err, errStopped):
		return partial, err
	case a.err != nil:
		e.bury(s, nil, false)
		return partial, e.lost(ctx, a.err)
	case a.code != 0:
		return partial, errCode(codeOther, a.text)
	case err != nil:
		return partial, errors.New("tar ended before the archive")
	}
	return "", nil
}

// errStopped means that tar has ended.
var errStopped = errors.New("tar has ended")

// filter copies the entries of an archive that may be unpacked.
type filter struct {
	links map[string]bool        // what is a link, in the place or of the archive
	files map[string]bool        // what is a file of the archive
	modes map[string]fs.FileMode // of files and folders of the archive
	last  []*tar.Header          // folders that get their mode at the end
	// format is what the tar of the place understands: that of GNU has times to the nanosecond in PAX headers, others skip
	// these, and with them long names.
	format tar.Format
}

// copy copies an archive. If it fails in the middle of a file, it returns the file's name.
func (f *filter) copy(ctx context.Context, w io.Writer, archive io.Reader) (partial string, err error) {
	in, out := tartree.NewReader(ctx, archive), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if err == io.EOF { //nolint:errorlint // A failure that wraps io.EOF is no end.
			return "", errors.Join(f.finish(out), out.Close())
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("unpack: %w", err), f.finish(out), out.Close())
		}
		clean, err := f.entry(h)
		if err != nil {
			err = &tartree.EntryError{Name: h.Name, Err: err}
			return "", errors.Join(err, f.finish(out), out.Close())
		}
		if clean == nil {
			continue
		}
		if err := out.WriteHeader(clean); err != nil {
			return "", fmt.Errorf("unpack %q: %w", h.Name, err)
		}
		if clean.Typeflag != tar.TypeReg {
			continue
		}
		n, err := io.Copy(out, in)
		if err == nil && n != clean.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return clean.Name, fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

// finish gives folders their modes, deepest last made, first.
func (f *filter) finish(out *tar.Writer) error {
	for i := len(f.last) - 1; i >= 0; i-- {
		if err := out.WriteHeader(f.last[i]); err != nil {
			return err
		}
	}
	f.last = nil
	return nil
}

// entry returns what is passed on of an entry; nil is nothing.
func (f *filter) entry(h *tar.Header) (*tar.Header, error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil, nil
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return nil, err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return nil, tartree.ErrInvalidName
		}
		return nil, nil
	}
	if f.through(path.Dir(name)) {
		return nil, fmt.Errorf("%w: the name passes through a link", tartree.ErrEscapes)
	}
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, ModTime: h.ModTime, Format: f.format}
	isLink := f.links[name]
	delete(f.files, name)
	switch h.Typeflag {
	case tar.TypeDir:
		if isLink {
			return nil, fmt.Errorf("%w: a symbolic link is there already", tartree.ErrEscapes)
		}
		clean.Name += "/"
		f.modes[name] = fs.ModeDir | fs.FileMode(clean.Mode)
		if final := *clean; clean.Mode&0o700 != 0o700 {
			f.last = append(f.last, &final)
			clean.Mode |= 0o700
		}
		return clean, nil
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, '\x00':
		if strings.HasSuffix(h.Name, "/") {
			return nil, tartree.ErrInvalidName
		}
		clean.Typeflag, clean.Size = tar.TypeReg, h.Size
		delete(f.links, name)
		f.files[name], f.modes[name] = true, fs.FileMode(clean.Mode)
		return clean, nil
	case tar.TypeSymlink:
		if h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) {
			return nil, fmt.Errorf("%w: link to %q", tartree.ErrInvalidName, h.Linkname)
		}
		clean.Linkname = h.Linkname
		f.links[name] = true
		return clean, nil
	case tar.TypeLink:
		return f.hardLink(clean, h.Linkname)
	}
	return nil, tartree.ErrSpecial
}

// hardLink passes on a second name of a file that the archive has brought.
func (f *filter) hardLink(clean *tar.Header, target string) (*tar.Header, error) {
	old, err := cleanName(target)
	if err == nil && (!f.files[old] || old == clean.Name) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("hard link to %q: %w", target, err)
	}
	clean.Linkname = old
	delete(f.links, clean.Name)
	f.files[clean.Name] = true
	return clean, nil
}

// through reports whether a folder, or one that it is in, is a link.
func (f *filter) through(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if f.links[dir] {
			return true
		}
	}
	return false
}

// cleanName checks a name relative to a folder and returns it without redundant parts; "." is the folder itself.
func cleanName(name string) (string, error) {
	if name == "" || len(name) > 4096 || strings.ContainsRune(name, 0) {
		return "", tartree.ErrInvalidName
	}
	if name[0] == '/' {
		return "", tartree.ErrEscapes
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", tartree.ErrEscapes
		}
	}
	return path.Clean(name), nil
}

var _ env.Copier = (*Environment)(nil)
