package tartree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// raw makes an archive from headers, with the content of each file.
func raw(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{
			Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: 0o644,
			Size: int64(len(e.content)),
		}
		if e.mode != 0 {
			h.Mode = e.mode
		}
		if e.kind == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: e.kind, PAXRecords: map[string]string{"comment": "c"}}
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

type entry struct {
	kind          byte
	name          string
	link, content string
	mode          int64
}

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) entry { return entry{kind: tar.TypeReg, name: name, content: "evil"} }
	symlink := func(name, target string) entry {
		return entry{
			kind: tar.TypeSymlink, name: name,
			link: target,
		}
	}
	strict := UnpackOptions{RefuseOutsideLinks: true}
	tests := []struct {
		name    string
		opts    UnpackOptions
		entries []entry
		err     error
	}{
		{"parent", UnpackOptions{}, []entry{file("../canary")}, env.ErrEscapes},
		{"inner parent", UnpackOptions{}, []entry{file("a/../../canary")}, env.ErrEscapes},
		{"parent that stays", UnpackOptions{}, []entry{file("a/../b")}, env.ErrEscapes},
		{"absolute", UnpackOptions{}, []entry{file("/tmp/canary")}, env.ErrEscapes},
		{"too long", UnpackOptions{}, []entry{file(strings.Repeat("a/", 3000) + "b")}, ErrInvalidName},
		{"root as file", UnpackOptions{}, []entry{file("./.")}, ErrInvalidName},
		{"character device", UnpackOptions{}, []entry{{kind: tar.TypeChar, name: "null"}}, ErrSpecial},
		{"block device", UnpackOptions{}, []entry{{kind: tar.TypeBlock, name: "sda"}}, ErrSpecial},
		{"pipe", UnpackOptions{}, []entry{{kind: tar.TypeFifo, name: "fifo"}}, ErrSpecial},
		{
			"through absolute link",
			UnpackOptions{},
			[]entry{symlink("l", "/tmp"), file("l/x")},
			env.ErrEscapes,
		},
		{
			"through relative link",
			UnpackOptions{},
			[]entry{symlink("l", ".."), file("l/canary")},
			env.ErrEscapes,
		},
		{"directory through link", UnpackOptions{}, []entry{symlink("l", ".."), {
			kind: tar.TypeDir,
			name: "l/d",
		}}, env.ErrEscapes},
		{
			"directory on link",
			UnpackOptions{},
			[]entry{symlink("l", ".."), {kind: tar.TypeDir, name: "l"}},
			env.ErrEscapes,
		},
		{
			"link through link",
			UnpackOptions{},
			[]entry{symlink("l", ".."), symlink("l/canary", "x")},
			env.ErrEscapes,
		},
		{
			"hard link out",
			UnpackOptions{},
			[]entry{{kind: tar.TypeLink, name: "h", link: "../canary"}},
			env.ErrEscapes,
		},
		{"hard link to absolute", UnpackOptions{}, []entry{{
			kind: tar.TypeLink, name: "h",
			link: "/etc/passwd",
		}}, env.ErrEscapes},
		{"hard link through link", UnpackOptions{}, []entry{symlink("l", ".."), {
			kind: tar.TypeLink,
			name: "h", link: "l/canary",
		}}, env.ErrEscapes},
		{"hard link to link", UnpackOptions{}, []entry{symlink("l", "../canary"), {
			kind: tar.TypeLink,
			name: "h", link: "l",
		}}, ErrSpecial},
		{
			"hard link to nothing",
			UnpackOptions{},
			[]entry{{kind: tar.TypeLink, name: "h", link: "x"}},
			fs.ErrNotExist,
		},
		{"hard link to itself", UnpackOptions{}, []entry{file("h"), {
			kind: tar.TypeLink, name: "h",
			link: "h",
		}}, ErrInvalidName},
		{
			"file on directory",
			UnpackOptions{},
			[]entry{{kind: tar.TypeDir, name: "d"}, file("d")},
			syscall.EISDIR,
		},
		{
			"link on directory",
			UnpackOptions{},
			[]entry{{kind: tar.TypeDir, name: "d"}, symlink("d", "x")},
			syscall.EISDIR,
		},
		{
			"directory on file",
			UnpackOptions{},
			[]entry{file("f"), {kind: tar.TypeDir, name: "f"}},
			syscall.ENOTDIR,
		},
		{"below file", UnpackOptions{}, []entry{file("f"), file("f/x")}, syscall.ENOTDIR},
		{"strict: absolute link", strict, []entry{symlink("l", "/etc/passwd")}, env.ErrEscapes},
		{"strict: relative link", strict, []entry{symlink("d/l", "../../canary")}, env.ErrEscapes},
		{"strict: link with late parent", strict, []entry{symlink("d/l", "x/../../..")}, env.ErrEscapes},
		{"strict: link through link to a parent", strict, []entry{
			symlink("d/e/s", "../.."),
			symlink("d/e/l", "s/../.."),
		}, env.ErrEscapes},
		{"strict: through link", strict, []entry{
			{kind: tar.TypeDir, name: "d"},
			symlink("l", "d"),
			file("l/x"),
		}, env.ErrEscapes},
		{"strict: directory on link", strict, []entry{
			{kind: tar.TypeDir, name: "d"},
			symlink("l", "d"),
			{kind: tar.TypeDir, name: "l"},
		}, env.ErrEscapes},
		{
			"entries",
			UnpackOptions{MaxEntries: 2},
			[]entry{file("a"), file("b"), file("c")},
			env.ErrTreeTooLarge,
		},
		{
			"directories nobody named",
			UnpackOptions{MaxEntries: 4},
			[]entry{file("a/b/c/d/e")},
			env.ErrTreeTooLarge,
		},
		{"bytes", UnpackOptions{MaxBytes: 7}, []entry{file("a"), file("b")}, env.ErrTreeTooLarge},
		{"bytes by hard links", UnpackOptions{MaxBytes: 7}, []entry{file("a"), {
			kind: tar.TypeLink,
			name: "b", link: "a",
		}}, env.ErrTreeTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			write(t, filepath.Join(base, "canary"), "alive", 0o644)
			dst := filepath.Join(base, "root")
			if err := os.Mkdir(dst, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(raw(t, tt.entries...)), tt.opts)
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			var ee *EntryError
			if last := tt.entries[len(tt.entries)-1].name; !errors.As(err, &ee) || ee.Name != last {
				t.Errorf("got %v, want an EntryError for %q", err, last)
			}
			if err := os.RemoveAll(dst); err != nil {
				t.Fatal(err)
			}
			want := map[string]node{"canary": {Mode: 0o644, Content: "alive", Time: stamp.UTC()}}
			if diff := cmp.Diff(want, tree(t, base)); diff != "" {
				t.Errorf("outside the root (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnpackAccepts(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "canary"), "alive", 0o644)
	dst := filepath.Join(base, "root")
	write(t, filepath.Join(dst, "old"), "old", 0o644)
	link(t, "../canary", filepath.Join(dst, "trap"))
	archive := raw(
		t,
		entry{kind: tar.TypeDir, name: "./", mode: 0o700},
		entry{kind: tar.TypeReg, name: "./d/e/f", content: "one", mode: 0o6755},
		entry{kind: tar.TypeReg, name: "d/e/f", content: "two"},
		entry{kind: tar.TypeReg, name: "trap", content: "replaced"},
		entry{kind: tar.TypeSymlink, name: "d/up", link: "../old"},
		entry{kind: tar.TypeSymlink, name: "top", link: "d"},
		entry{kind: tar.TypeLink, name: "hard", link: "d/e/f"},
		entry{kind: tar.TypeXGlobalHeader, name: "pax"},
	)
	// tar programs pad their last record.
	archive = append(archive, make([]byte, 10<<10)...)
	opts := UnpackOptions{RefuseOutsideLinks: true, MaxEntries: 9, MaxBytes: 17}
	if err := Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(archive), opts); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, n := range tree(t, base) {
		got[name] = fmt.Sprintf("%v %s", n.Mode&(fs.ModeType|fs.ModeSetuid), n.Content)
	}
	want := map[string]string{
		"canary": "---------- alive", "root": "d--------- ", "root/old": "---------- old",
		"root/d":   "d--------- ",
		"root/d/e": "d--------- ", "root/d/e/f": "---------- two", "root/trap": "---------- replaced",
		"root/d/up": "L--------- ../old", "root/top": "L--------- d", "root/hard": "---------- two",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestUnpackThroughInsideLink(t *testing.T) {
	dst := t.TempDir()
	write(t, filepath.Join(dst, "real", "x"), "old", 0o644)
	link(t, "real", filepath.Join(dst, "l"))
	archive := raw(t, entry{kind: tar.TypeDir, name: "l/", mode: 0o755}, entry{
		kind: tar.TypeReg,
		name: "l/x", content: "new",
	})
	if err := Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(archive),
		UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dst); got["real/x"].Content != "new" || got["l"].Content != "real" {
		t.Errorf("got %v, want the symlink kept and its directory filled", got)
	}
}

func TestUnpackDropsSpecialBits(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no setuid bit")
	}
	dst := t.TempDir()
	archive := raw(t, entry{kind: tar.TypeDir, name: "d", mode: 0o7755}, entry{
		kind: tar.TypeReg,
		name: "f", mode: 0o7755,
	})
	if err := Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(archive),
		UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	got := tree(t, dst)
	if got["d"].Mode != fs.ModeDir|0o755 || got["f"].Mode != 0o755 {
		t.Errorf("got modes %v and %v, want them without setuid, setgid and sticky", got["d"].Mode,
			got["f"].Mode)
	}
}

// Unpack reports a cut archive, even one cut between two entries.
func TestUnpackTruncated(t *testing.T) {
	zeros := strings.Repeat("\x00", 2*blockSize)
	archive := raw(t, entry{kind: tar.TypeReg, name: "a", content: zeros}, entry{
		kind: tar.TypeReg,
		name: "b", content: "bb",
	})
	end := len(archive) - 2*blockSize
	for n := 0; n <= end; n += 64 {
		err := Unpack(t.Context(), openRoot(t, t.TempDir()), bytes.NewReader(archive[:n]),
			UnpackOptions{})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: got %v, want io.ErrUnexpectedEOF", n, err)
		}
	}
	if err := Unpack(t.Context(), openRoot(t, t.TempDir()), bytes.NewReader(archive),
		UnpackOptions{}); err != nil {
		t.Error(err)
	}
}

func TestUnpackSenderFailsAfterEnd(t *testing.T) {
	boom := errors.New("exit status 1")
	r := io.MultiReader(bytes.NewReader(raw(t, entry{kind: tar.TypeReg, name: "a"})),
		&failingReader{boom})
	if err := Unpack(t.Context(), openRoot(t, t.TempDir()), r, UnpackOptions{}); !errors.Is(err,
		boom) {
		t.Errorf("got %v, want the sender's last error", err)
	}
	lost := fmt.Errorf("connection lost: %w", io.EOF)
	archive := raw(t, entry{kind: tar.TypeReg, name: "a"})
	for _, n := range []int{0, blockSize, blockSize + 100, 2 * blockSize, len(archive)} {
		r = io.MultiReader(bytes.NewReader(archive[:n]), &failingReader{lost})
		if err := Unpack(t.Context(), openRoot(t, t.TempDir()), r, UnpackOptions{}); err == nil {
			t.Errorf("a connection lost after %d bytes was taken for the end", n)
		}
	}
	r = io.MultiReader(bytes.NewReader(raw(t, entry{kind: tar.TypeReg, name: "a"})), endless{})
	if err := Unpack(t.Context(), openRoot(t, t.TempDir()), r, UnpackOptions{}); !errors.Is(err,
		env.ErrTreeTooLarge) {
		t.Errorf("got %v, want env.ErrTreeTooLarge", err)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read([]byte) (int, error) { return 0, r.err }

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestUnpackReplacesWhole checks that a file keeps its former content until all of the new one is
// there, also if the archive is cut in it.
func TestUnpackReplacesWhole(t *testing.T) {
	archive := raw(t, entry{kind: tar.TypeReg, name: "a", content: strings.Repeat("x", 5000)})
	for name, rest := range map[string][]byte{"whole": archive[2000:], "cut": nil} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			write(t, filepath.Join(dst, "a"), "old", 0o644)
			asked := 0
			r := io.MultiReader(bytes.NewReader(archive[:2000]), readerFunc(func([]byte) (int, error) {
				asked++
				if got := tree(t, dst)["a"].Content; got != "old" {
					t.Errorf("in the middle of the archive the content is %.20q", got)
				}
				return 0, io.EOF
			}), bytes.NewReader(rest))
			err := Unpack(t.Context(), openRoot(t, dst), r, UnpackOptions{})
			want := "old"
			if rest != nil {
				want = strings.Repeat("x", 5000)
			} else if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want io.ErrUnexpectedEOF", err)
			}
			if got := tree(t, dst); len(got) != 1 || got["a"].Content != want || asked == 0 {
				t.Errorf("got %v, want one file with %.20q", got, want)
			}
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Unpack never writes out of the root while a thread swaps a directory for an escaping symlink.
func TestUnpackRace(t *testing.T) {
	base := t.TempDir()
	dst, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, dir := range []string{filepath.Join(dst, "d"), outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link(t, "../outside", filepath.Join(dst, "evil"))
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Rename(filepath.Join(dst, "d"), filepath.Join(dst, "hidden"))
			_ = os.Rename(filepath.Join(dst, "evil"), filepath.Join(dst, "d"))
			_ = os.Rename(filepath.Join(dst, "d"), filepath.Join(dst, "evil"))
			_ = os.Rename(filepath.Join(dst, "hidden"), filepath.Join(dst, "d"))
		}
	}()
	archive := raw(t, entry{kind: tar.TypeReg, name: "d/x", content: "evil"}, entry{
		kind: tar.TypeReg,
		name: "d/y", content: "evil",
	})
	root := openRoot(t, dst)
	for range 1000 {
		_ = Unpack(t.Context(), root, bytes.NewReader(archive), UnpackOptions{})
	}
	close(done)
	<-stopped
	if got := tree(t, outside); len(got) != 0 {
		t.Errorf("outside the root: %v", got)
	}
}

// Unpack makes held files last, and removes them after an error.
func TestUnpackHolds(t *testing.T) {
	file := func(name, content string) entry {
		return entry{kind: tar.TypeReg, name: name, content: content}
	}
	for _, tt := range []struct {
		name    string
		entries []entry
		want    string
		err     error
	}{
		{
			"kept and left out",
			[]entry{file("held/a", "1"), file("held/b", "2"), file("x", "3"), file("held/a", "4")},
			"held/a=4 x=3 ", nil,
		},
		{
			"too many",
			[]entry{file("held/a", ""), file("held/b", ""), file("held/c", "")},
			"",
			env.ErrTreeTooLarge,
		},
		{"after an error", []entry{file("held/a", ""), file("../x", "")}, "", env.ErrEscapes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			err = Unpack(t.Context(), root, bytes.NewReader(raw(t, tt.entries...)), UnpackOptions{
				MaxHeld: 2, Hold: func(name string) bool { return strings.HasPrefix(name, "held/") },
				Keep: func(name string) bool {
					if _, err := os.Lstat(filepath.Join(dir, "x")); err != nil {
						t.Errorf("%s comes before others", name)
					}
					return name == "held/a"
				},
			})
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			var got strings.Builder
			err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				content, err := root.ReadFile(name)
				fmt.Fprintf(&got, "%s=%s ", name, content)
				return err
			})
			if err != nil || got.String() != tt.want {
				t.Errorf("%v, got %q, want %q", err, got.String(), tt.want)
			}
		})
	}
}
