package server

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

var day = time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC)

// reader returns an environment with the files of m.
func reader(m fstest.MapFS) *wiretest.Env {
	name := func(s string) string { return strings.TrimPrefix(s, "./") }
	return &wiretest.Env{
		OnOpen:    func(_ context.Context, n string) (fs.File, error) { return m.Open(name(n)) },
		OnStat:    func(_ context.Context, n string) (fs.FileInfo, error) { return m.Stat(name(n)) },
		OnReadDir: func(_ context.Context, n string) ([]fs.DirEntry, error) { return m.ReadDir(name(n)) },
	}
}

// decoded reads the records of an answer.
func decoded[T any](t *testing.T, a *reading) []T {
	t.Helper()
	list := make([]T, len(a.records))
	for i, r := range a.records {
		if err := json.Unmarshal(r, &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func valueOf[T any](t *testing.T, a *reading) (v T) {
	t.Helper()
	if a.end == nil {
		t.Fatalf("no last frame: %+v", a)
	}
	if err := json.Unmarshal(a.end.Value, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOpenFile(t *testing.T) {
	wiretest.NoLeaks(t)
	big := wiretest.Sequence(0, 3<<20)
	c := startServer(t, reader(fstest.MapFS{
		"big":   {Data: big, Mode: 0o640, ModTime: day},
		"empty": {ModTime: day},
	}), nil).connect("c")
	for _, test := range []struct {
		name, file string
		offset     int
		want       []byte
	}{
		{"whole", "big", 0, big},
		{"from an offset", "big", 1<<20 + 5, big[1<<20+5:]},
		{"at the end", "big", len(big), nil},
		{"behind the end", "big", 2 * len(big), nil},
		{"empty", "empty", 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := c.call("GET", "/file"+query1(test.file)+"&offset="+strconv.Itoa(test.offset), nil).fine(t)
			if !bytes.Equal(a.data, test.want) {
				t.Errorf("%d bytes, want %d", len(a.data), len(test.want))
			}
			info := decoded[wire.FileInfo](t, a)
			if len(info) != 1 || string(info[0].Name) != test.file {
				t.Errorf("described as %+v", info)
			}
			if test.file == "big" && (info[0].Size != int64(len(big)) || info[0].Mode != 0o640 ||
				!info[0].ModTime().Equal(day)) {
				t.Errorf("described as %+v", info)
			}
		})
	}
	a := c.call("GET", "/file?name=missing", nil)
	var path *fs.PathError
	if err := a.end.Error.Err(); !errors.As(err, &path) || !errors.Is(err, fs.ErrNotExist) ||
		path.Path != "missing" {
		t.Errorf("a missing file: %v", err)
	}
}

func TestStatAndDir(t *testing.T) {
	wiretest.NoLeaks(t)
	files := fstest.MapFS{}
	for i := range 3000 {
		files[fmt.Sprintf("d/%04d", i)] = &fstest.MapFile{
			Data: make([]byte, i), Mode: 0o600,
			ModTime: day,
		}
	}
	c := startServer(t, reader(files), nil).connect("c")
	info := valueOf[wire.FileInfo](t, c.call("GET", "/stat?name=d/0007", nil).fine(t))
	want := wire.FileInfo{Name: "0007", Size: 7, Mode: 0o600, Seconds: day.Unix(), Nanos: 4}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	list := decoded[wire.FileInfo](t, c.call("GET", "/dir?name=d", nil).fine(t))
	if len(list) != len(files) {
		t.Fatalf("%d entries", len(list))
	}
	want.Name, want.Size = "2999", 2999
	if diff := cmp.Diff(want, list[2999]); diff != "" {
		t.Error(diff)
	}
	if a := c.call("GET", "/dir?name=nowhere", nil); !errors.Is(a.end.Error.Err(), fs.ErrNotExist) {
		t.Errorf("a missing directory: %+v", a)
	}
}

// TestReadAllTogether: what all files of one request may hold.
func TestReadAllTogether(t *testing.T) {
	files := fstest.MapFS{
		"empty": {}, "one": {Data: []byte("1")}, "two": {Data: []byte("22")},
		"three": {Data: []byte("333")},
	}
	p := &peer{s: &Server{env: reader(files)}}
	for _, c := range []struct {
		name        string
		limit, left int64
		fits        bool
		text        string
	}{
		{"two", 10, 10, true, ""},
		{"two", 2, 2, true, ""},
		{"two", 1, 10, false, "read two: file too large: more than 1 bytes"},
		{"two", 10, 2, true, ""},
		{"three", 10, 2, false, fmt.Sprintf("read three: file too large: more than %d bytes with the "+
			"files before it", env.MaxReadFiles)},
		{"one", 0, 1, true, ""},
		{"one", 10, 0, false, fmt.Sprintf("read one: file too large: more than %d bytes with the "+
			"files before it", env.MaxReadFiles)},
		{"empty", 10, 0, true, ""},
		{"missing", 10, 0, false, "open missing: file does not exist"},
	} {
		t.Run(fmt.Sprintf("%s, limit %d, %d left", c.name, c.limit, c.left), func(t *testing.T) {
			data, err := p.readOne(t.Context(), c.name, c.limit, c.left)
			if !c.fits {
				if err == nil || err.Error() != c.text || data != nil {
					t.Errorf("%q, %v", data, err)
				}
				return
			}
			if err != nil || string(data) != string(files[c.name].Data) {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

func TestWriteRemoveUnpackPack(t *testing.T) {
	wiretest.NoLeaks(t)
	var log []string
	record := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	e := &wiretest.Env{
		OnWriteFile: func(
			_ context.Context, name string, r io.Reader, o env.WriteOptions,
		) (env.Written, error) {
			data, err := io.ReadAll(r)
			record("write %q %d %v %t %s", name, len(data), o.Mode, o.MustNotExist, o.IfSHA256)
			return env.Written{Size: int64(len(data)), Created: true, InPlace: true}, err
		},
		OnRemove: func(_ context.Context, name string, o env.RemoveOptions) error {
			record("remove %q %t", name, o.Recursive)
			return nil
		},
		OnCopyIn: func(_ context.Context, dir string, r io.Reader) error {
			h, err := tar.NewReader(r).Next()
			if err == nil {
				record("unpack %q %s", dir, h.Name)
			}
			return err
		},
		OnCopyOut: func(_ context.Context, dir string, names ...string) (io.ReadCloser, error) {
			record("pack %q %q", dir, names)
			return io.NopCloser(io.MultiReader(strings.NewReader("tar"), &failing{})), nil
		},
	}
	c := startServer(t, e, nil).connect("c")
	ids := 0
	change := func(method, path string, body io.Reader) *reading {
		ids++
		return c.call(method, path, body, wire.ChangeHeader, strconv.Itoa(ids)).fine(t)
	}
	mode := strconv.FormatUint(uint64(0o640|fs.ModeSetuid), 10)
	a := change("PUT", "/file"+query1("a\xff&b")+"&mode="+mode+"&new=1&sha256=aa",
		bytes.NewReader(make([]byte, 5<<20)))
	if got := valueOf[env.Written](t, a); got != (env.Written{
		Size: 5 << 20, Created: true,
		InPlace: true,
	}) {
		t.Errorf("written %+v", got)
	}
	change("DELETE", "/file?name=x", nil)
	change("DELETE", "/file?name=y&recursive=1", nil)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "n"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	change("POST", "/tree?dir=d", &archive)
	a = c.call("POST", "/pack", jsonOf(wire.PackRequest{Dir: "d", Names: []wire.Text{"a", "b\xff"}}))
	if string(a.data) != "tar" || a.end.Error == nil {
		t.Errorf("packed %+v", a)
	}
	want := []string{
		`write "a\xff&b" 5242880 urw-r----- true aa`, `remove "x" false`, `remove "y" true`,
		`unpack "d" n`, `pack "d" ["a" "b\xff"]`,
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Error(diff)
	}
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the disk is broken") }

func TestChangeIsMadeOnce(t *testing.T) {
	wiretest.NoLeaks(t)
	var made atomic.Int32
	release := make(chan struct{})
	e := &wiretest.Env{OnWriteFile: func(_ context.Context, name string, r io.Reader,
		_ env.WriteOptions,
	) (env.Written, error) {
		_, err := io.ReadAll(r)
		made.Add(1)
		<-release
		if name == "bad" {
			err = &fs.PathError{Op: "write", Path: name, Err: env.ErrNoSpace}
		}
		return env.Written{Size: 3}, err
	}}
	c := startServer(t, e, nil).connect("c")
	for _, name := range []string{"good", "bad"} {
		if got := valueOf[wire.ChangeOutcome](t, c.call("GET", "/op/not"+name, nil)); got.Known {
			t.Errorf("%s is known before it is made", name)
		}
		var all sync.WaitGroup
		answers := make(chan *reading, 20)
		for range 10 {
			all.Go(func() {
				answers <- c.call("PUT", "/file?name="+name, strings.NewReader("abc"), wire.ChangeHeader, name)
			})
		}
		wiretest.Eventually(t, "it is being made", func() bool { return made.Load() == 1 })
		for range 10 {
			all.Go(func() {
				a := c.call("GET", "/op/"+name, nil)
				a.end = valueOf[wire.ChangeOutcome](t, a).Outcome
				answers <- a
			})
		}
		if name == "good" {
			close(release)
		}
		all.Wait()
		close(answers)
		for a := range answers {
			if got := valueOf[env.Written](t, a); got.Size != 3 || errors.Is(a.end.Error.Err(),
				env.ErrNoSpace) != (name == "bad") {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if n := made.Swap(0); n != 1 {
			t.Errorf("%s was made %d times", name, n)
		}
	}
}

func TestChangeCutOff(t *testing.T) {
	wiretest.NoLeaks(t)
	read := make(chan error, 1)
	started := make(chan struct{})
	e := &wiretest.Env{OnWriteFile: func(ctx context.Context, _ string, r io.Reader,
		_ env.WriteOptions,
	) (env.Written, error) {
		_, err := io.ReadFull(r, make([]byte, 3))
		close(started)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		read <- err
		return env.Written{}, errors.Join(err, ctx.Err())
	}}
	s := startServer(t, e, nil)
	c := s.connect("c")
	body, feeding := io.Pipe()
	go func() { _, _ = feeding.Write([]byte("abc")) }()
	first := make(chan error, 1)
	go func() {
		first <- c.call("PUT", "/file?name=x", body, wire.ChangeHeader, "1").err
	}()
	<-started
	c = s.connect("c") // the connection before is dead
	if err := <-read; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the content seems whole: %v", err)
	}
	got := valueOf[wire.ChangeOutcome](t, c.call("GET", "/op/1", nil).fine(t))
	if !got.Known || !got.CutOff || got.Outcome.Error == nil {
		t.Errorf("the outcome is %+v", got)
	}
	_ = feeding.Close()
	if <-first == nil {
		t.Error("the first request has an answer")
	}
}

// TestChangeGoesOn: a change whose content has arrived is finished, whatever becomes of the client.
func TestChangeGoesOn(t *testing.T) {
	wiretest.NoLeaks(t)
	started, release := make(chan struct{}), make(chan struct{})
	e := &wiretest.Env{OnRemove: func(ctx context.Context, _ string, _ env.RemoveOptions) error {
		close(started)
		<-release
		return ctx.Err()
	}}
	s := startServer(t, e, nil)
	c := s.connect("c")
	go c.call("DELETE", "/file?name=x", nil, wire.ChangeHeader, "1")
	<-started
	c = s.connect("c")
	answer := make(chan *reading, 1)
	go func() { answer <- c.call("GET", "/op/1", nil) }()
	close(release)
	if got := valueOf[wire.ChangeOutcome](t, (<-answer).fine(t)); !got.Known || got.CutOff ||
		got.Outcome.Error != nil {
		t.Errorf("the outcome is %+v", got)
	}
}

func TestOpsMemory(t *testing.T) {
	var table changes
	table.init()
	p := &peer{}
	for i := range 3 * maxChanges {
		o, fresh, err := table.start(p, strconv.Itoa(i))
		if err != nil || !fresh {
			t.Fatal(err)
		}
		table.finish(strconv.Itoa(i), o)
	}
	if _, _, err := table.start(p, "in progress"); err != nil {
		t.Fatal(err)
	}
	if len(table.byID) != maxChanges+1 || table.get(strconv.Itoa(2*maxChanges-1)) != nil ||
		table.get(strconv.Itoa(2*maxChanges)) == nil {
		t.Errorf("%d changes are remembered", len(table.byID))
	}
}

// TestGateOfServer: requests whose content does not come, and answers that nobody reads, do
// not occupy the gate.
func TestGateOfServer(t *testing.T) {
	wiretest.NoLeaks(t)
	files := reader(fstest.MapFS{"big": {Data: make([]byte, 4<<20)}, "small": {Data: []byte("x")}})
	files.OnWriteFile = func(_ context.Context, _ string, r io.Reader,
		_ env.WriteOptions,
	) (env.Written, error) {
		_, err := io.ReadAll(r)
		return env.Written{}, err
	}
	c := startServer(t, files, func(cfg *Config) { cfg.MaxBlocking = 1 }).connect("c")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 3 {
		body, feeding := io.Pipe()
		all.Go(func() {
			read(c.send(ctx, "PUT", "/file?name=x", body, wire.ChangeHeader, strconv.Itoa(i)))
		})
		all.Go(func() {
			_, _ = feeding.Write([]byte("some"))
			<-ctx.Done()
			_ = feeding.CloseWithError(ctx.Err())
		})
		unread, err := c.send(ctx, "GET", "/file?name=big", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unread.Close() }()
	}
	wiretest.Within(t, "other operations go on", func() {
		for range 20 {
			c.call("GET", "/file?name=small", nil).fine(t)
		}
	})
	cancel()
	all.Wait()
}
