package tool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// memory is an environment that holds its files in memory, with links, and runs no commands but
// through exec. Its working directory is /work.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*node
	exec  func(ctx context.Context, c env.Command) (env.Result, error)
	shell []string
	// fail makes operations on a name fail; the key is such as "write a.txt".
	fail map[string]error
	// calls records the changes, such as "write /work/a".
	calls []string
}

type node struct {
	name string
	mode fs.FileMode
	data []byte
	link string
	time time.Time
}

func (n *node) Name() string               { return n.name }
func (n *node) Size() int64                { return int64(len(n.data)) }
func (n *node) Mode() fs.FileMode          { return n.mode }
func (n *node) ModTime() time.Time         { return n.time }
func (n *node) IsDir() bool                { return n.mode.IsDir() }
func (n *node) Sys() any                   { return nil }
func (n *node) Type() fs.FileMode          { return n.mode.Type() }
func (n *node) Info() (fs.FileInfo, error) { return n, nil }

var _ env.Environment = (*memory)(nil)

// newMemory makes an environment with files. A name that ends in / is a directory; a content that
// starts with "-> " makes a symlink. Relative names are below /work.
func newMemory(files map[string]string) *memory {
	m := &memory{
		nodes: map[string]*node{"/": {name: "/", mode: fs.ModeDir | 0o755}}, shell: []string{"sh", "-c"},
	}
	m.parents("/work/x")
	for name, content := range files {
		full := m.abs(name)
		m.parents(full)
		n := &node{name: path.Base(full), mode: 0o644, data: []byte(content)}
		if strings.HasSuffix(name, "/") {
			n.mode, n.data = fs.ModeDir|0o755, nil
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			n.mode, n.data, n.link = fs.ModeSymlink|0o777, nil, target
		}
		m.nodes[full] = n
	}
	return m
}

func (m *memory) abs(name string) string {
	if !path.IsAbs(name) {
		name = "/work/" + name
	}
	return path.Clean(name)
}

func (m *memory) parents(full string) {
	for dir := path.Dir(full); dir != "/"; dir = path.Dir(dir) {
		if m.nodes[dir] == nil {
			m.nodes[dir] = &node{name: path.Base(dir), mode: fs.ModeDir | 0o755}
		}
	}
}

// follow returns the physical name that name leads to, which may not exist.
func (m *memory) follow(name string, last bool) (string, error) {
	if !path.IsAbs(name) {
		name = "/work/" + name
	}
	todo := strings.Split(name, "/")
	at := "/"
	for links := 0; len(todo) > 0; {
		element := todo[0]
		todo = todo[1:]
		switch element {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, element)
		n := m.nodes[next]
		final := strings.Trim(strings.Join(todo, ""), ".") == ""
		switch {
		case n == nil && !final:
			// A missing name may be created.
			return path.Join(append([]string{next}, todo...)...), nil
		case n != nil && n.link != "" && (!final || last):
			if links++; links > 40 {
				return "", errors.New("too many links")
			}
			if path.IsAbs(n.link) {
				at = "/"
			}
			todo = append(strings.Split(n.link, "/"), todo...)
			continue
		case n != nil && !final && !n.IsDir():
			return "", env.ErrNotDir
		}
		at = next
	}
	return at, nil
}

// find returns the node that name leads to, or the symlink that name is unless follow is set.
func (m *memory) find(op, name string, follow bool) (*node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	full, err := m.follow(name, follow)
	if err == nil && m.nodes[full] == nil {
		err = fs.ErrNotExist
	}
	if err = cmp.Or(m.fail[op+" "+name], err); err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return m.nodes[full], nil
}

func (m *memory) info(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := m.find(op, name, follow)
	if err != nil {
		return nil, err
	}
	return n, nil
}

type memoryFile struct {
	*bytes.Reader
	n *node
}

func (f memoryFile) Stat() (fs.FileInfo, error) { return f.n, nil }
func (f memoryFile) Close() error               { return nil }

func (m *memory) Open(_ context.Context, name string) (fs.File, error) {
	n, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	if n.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: env.ErrIsDir}
	}
	return memoryFile{bytes.NewReader(n.data), n}, nil
}

func (m *memory) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return m.info("stat", name, true)
}

func (m *memory) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	return m.info("lstat", name, false)
}

func (m *memory) ReadLink(_ context.Context, name string) (string, error) {
	n, err := m.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.link == "" {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return n.link, nil
}

func (m *memory) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	n, err := m.find("readdir", name, true)
	if err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: env.ErrNotDir}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	full, _ := m.follow(name, true)
	var entries []fs.DirEntry
	for p, n := range m.nodes {
		if p != "/" && path.Dir(p) == full {
			entries = append(entries, n)
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (m *memory) WriteFile(
	_ context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return env.Written{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := func(err error) (env.Written, error) {
		return env.Written{}, &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if err := m.fail["write "+name]; err != nil {
		return failed(err)
	}
	full, err := m.follow(name, true)
	if err != nil {
		return failed(err)
	}
	n := m.nodes[full]
	created := n == nil
	if created {
		for dir := path.Dir(full); dir != "/"; dir = path.Dir(dir) {
			if p := m.nodes[dir]; p != nil && !p.IsDir() {
				return failed(env.ErrNotDir)
			}
		}
		m.parents(full)
		n = &node{name: path.Base(full), mode: 0o644}
	}
	if n.IsDir() {
		return failed(env.ErrIsDir)
	}
	if opts.IfSHA256 != "" {
		sum := sha256.Sum256(n.data)
		if hex.EncodeToString(sum[:]) != opts.IfSHA256 {
			return failed(env.ErrChanged)
		}
	}
	if opts.Mode != 0 {
		n.mode = opts.Mode
	}
	n.data = data
	m.nodes[full] = n
	m.calls = append(m.calls, "write "+full)
	return env.Written{Size: int64(len(data)), Created: created}, nil
}

func (m *memory) Remove(_ context.Context, name string, _ env.RemoveOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	full, err := m.follow(name, false)
	if err == nil {
		err = m.fail["remove "+name]
	}
	if err == nil && m.nodes[full] == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	delete(m.nodes, full)
	m.calls = append(m.calls, "remove "+full)
	return nil
}

func (m *memory) CopyIn(context.Context, string, io.Reader) error { return errors.ErrUnsupported }

func (m *memory) CopyOut(context.Context, string, ...string) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}

func (m *memory) Exec(ctx context.Context, c env.Command) (env.Result, error) {
	if m.exec == nil {
		return env.Result{}, &env.StartError{Argv: c.Argv, Err: fs.ErrNotExist}
	}
	return m.exec(ctx, c)
}

func (m *memory) Info() env.Info {
	return env.Info{
		Backend: "memory", OS: "linux", Arch: "amd64", WorkDir: "/work", Shell: m.shell,
		NoShell: "the memory environment has none",
	}
}

func (m *memory) Close() error { return nil }

// files returns all files and links, as newMemory takes them.
func (m *memory) files() map[string]string {
	files := map[string]string{}
	for name, n := range m.nodes {
		rel, below := strings.CutPrefix(name, "/work/")
		if below {
			name = rel
		}
		switch {
		case n.link != "":
			files[name] = "-> " + n.link
		case !n.IsDir():
			files[name] = string(n.data)
		}
	}
	return files
}

func TestMemory(t *testing.T) {
	files := map[string]string{"a/b": "x", "l": "-> a/../a/b", "/out": "y"}
	m := newMemory(files)
	if got := m.files(); !maps.Equal(got, files) {
		t.Errorf("got %v, want %v", got, files)
	}
	data, err := env.ReadFile(t.Context(), m, "l", 0)
	if err != nil || string(data) != "x" {
		t.Errorf("got %q, %v", data, err)
	}
}

// meddler changes a file right after it was read.
type meddler struct {
	*memory
	name string
}

func (e *meddler) Open(ctx context.Context, name string) (fs.File, error) {
	f, err := e.memory.Open(ctx, name)
	if name == e.name {
		e.nodes[e.abs(name)].data = []byte("meddled")
	}
	return f, err
}

// folding ignores the case of names.
type folding struct{ *memory }

func (e folding) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return e.memory.Stat(ctx, e.spelled(name))
}

func (e folding) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return e.memory.Lstat(ctx, e.spelled(name))
}

func (e folding) ReadLink(ctx context.Context, name string) (string, error) {
	return e.memory.ReadLink(ctx, e.spelled(name))
}

// spelled returns the spelling of name in the listing of its directory.
func (e folding) spelled(name string) string {
	for full := range e.nodes {
		if strings.EqualFold(full, e.abs(name)) {
			return full
		}
	}
	return name
}
