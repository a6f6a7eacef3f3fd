//go:build unix

package integration_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// TestFault17Names gives names that lead outside, or that no system can hold, to everything that
// writes on the host or reads a tree.
func TestFault17Names(t *testing.T) {
	for _, tt := range []struct {
		name  string
		prove func(*testing.T)
	}{
		{"F17_archives_that_are_downloaded", proveArchives},
		{"F17_names_that_are_asked_for", proveAskedNames},
		{"F17_names_in_a_tree_of_a_liar", proveLiar},
		{"F17_places_of_a_patch", provePlaces},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.prove(t)
		})
	}
}

// unchanged checks what is outside.
func (a *arena) unchanged() {
	a.t.Helper()
	if diff := cmp.Diff(a.before, a.state(a.outside)); diff != "" {
		a.t.Errorf("outside (-want +got):\n%s", diff)
	}
}

// long is a name of n bytes, in elements of at most 200.
func long(n int) string {
	return strings.Repeat(strings.Repeat("n", 199)+"/", n/200+1)[:n-1] + "n"
}

func proveArchives(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name} }
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
	}
	other := errors.New("any other error")
	for name, tt := range map[string]struct {
		entries []tar.Header
		// there is what the name d is before the download, if it is a link.
		there string
		want  error
	}{
		"a name above": {
			entries: []tar.Header{file("../outside/x")},
			want:    env.ErrEscapes,
		},
		"a name above, later": {
			entries: []tar.Header{file("d/e/../../../outside/x")},
			want:    env.ErrEscapes,
		},
		"a folder above": {
			entries: []tar.Header{file("../outside/sub/")},
			want:    env.ErrEscapes,
		},
		"an absolute name": {
			entries: []tar.Header{file("/OUTSIDE/x")},
			want:    env.ErrEscapes,
		},
		"NUL in a name": {
			entries: []tar.Header{file("\u00e9#/../../outside/x")},
			want:    tar.ErrHeader,
		},
		"NUL in the target of a link": {
			entries: []tar.Header{link("d", "\u00e9#")},
			want:    tar.ErrHeader,
		},
		"a name of 4,096 bytes": {entries: []tar.Header{file(long(4096))}},
		"a name of 4,097 bytes": {entries: []tar.Header{file(long(4097))}, want: other},
		"an element of 4,096 bytes": {
			entries: []tar.Header{file(strings.Repeat("n", 4096))},
			want:    syscall.ENAMETOOLONG,
		},
		"a link to 4,095 bytes": {entries: []tar.Header{
			link("d", long(4095)),
			file("d/x"),
		}, want: env.ErrEscapes},
		"names that differ in case": {entries: []tar.Header{
			file("Name"), file("name"),
			file("NAME/x"),
		}, want: errAny},
		"a link and a folder by case": {entries: []tar.Header{
			file("e/"), link("D", "e"),
			file("d/x"),
		}, want: errAny},
		"a hard link above": {
			entries: []tar.Header{hard("d", "../outside/x")},
			want:    env.ErrEscapes,
		},
		"a hard link to an absolute name": {
			entries: []tar.Header{hard("d", "/OUTSIDE/x")},
			want:    env.ErrEscapes,
		},
		"a hard link through a link": {
			entries: []tar.Header{hard("e", "d/x")},
			there:   "../outside", want: env.ErrEscapes,
		},
		"a hard link to a link": {
			entries: []tar.Header{hard("e", "d")},
			there:   "../outside/x", want: other,
		},
		"a hard link over a link": {
			entries: []tar.Header{file("e"), hard("d", "e")},
			there:   "../outside/x",
		},
		"a link above": {
			entries: []tar.Header{link("d", "../outside")},
			want:    env.ErrEscapes,
		},
		"a link above through a link": {entries: []tar.Header{
			file("e/f/"), link("e/f/up", ".."),
			link("d", "e/f/up/../../outside"),
		}, want: env.ErrEscapes},
		"a link to an absolute name": {
			entries: []tar.Header{link("d", "/OUTSIDE/x")},
			want:    env.ErrEscapes,
		},
		"a link to itself": {
			entries: []tar.Header{link("d", "d"), file("d/x")},
			want:    env.ErrEscapes,
		},
		"a link that becomes a folder": {entries: []tar.Header{
			file("e/"), link("d", "e"),
			file("d/"), file("d/x"),
		}, want: env.ErrEscapes},
		"a link that becomes a file": {entries: []tar.Header{link("d", "e"), file("d")}},
		"a folder that becomes a link": {
			entries: []tar.Header{file("d/x"), link("d", "e")},
			want:    syscall.EISDIR,
		},
		"a folder where a link is": {
			entries: []tar.Header{file("d/")}, there: "../outside",
			want: env.ErrEscapes,
		},
		"a file below a link": {
			entries: []tar.Header{file("d/x")},
			there:   "/proc/self/root/OUTSIDE", want: env.ErrEscapes,
		},
		"a file where a link is": {entries: []tar.Header{file("d")}, there: "../outside/x"},
		"a link where a link is": {
			entries: []tar.Header{link("d", "e")},
			there:   "../outside/x",
		},
		"a file where a link to a pipe is": {
			entries: []tar.Header{file("d")},
			there:   "../outside/pipe",
		},
		"a file below a link to a pipe": {
			entries: []tar.Header{file("d/x")},
			there:   "../outside/pipe", want: env.ErrEscapes,
		},
		"a hard link to a link to a pipe": {
			entries: []tar.Header{hard("e", "d")},
			there:   "../outside/pipe", want: other,
		},
		"a pipe": {entries: []tar.Header{{
			Typeflag: tar.TypeFifo,
			Name:     "d",
		}}, want: other},
		"a device where a link to a device is": {entries: []tar.Header{{
			Typeflag: tar.TypeChar,
			Name:     "d",
		}}, there: "/dev/zero", want: other},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 0)
			real := func(name string) string { return strings.Replace(name, "/OUTSIDE", a.outside, 1) }
			for i := range tt.entries {
				tt.entries[i].Name, tt.entries[i].Linkname = real(tt.entries[i].Name),
					real(tt.entries[i].Linkname)
			}
			archive := bytes.ReplaceAll(makeTarball(t, tt.entries...), []byte("\u00e9#"),
				[]byte("\u00e9\x00"))
			if tt.there != "" {
				if err := os.Symlink(real(tt.there), filepath.Join(a.inside, "d")); err != nil {
					t.Fatal(err)
				}
			}
			err := transfer.Download(t.Context(), tarball(archive), "", nil, a.inside,
				transfer.DownloadOptions{})
			switch {
			case errors.Is(tt.want, errAny): // it depends on the file system
			case errors.Is(tt.want, other):
				if err == nil {
					t.Error("it was accepted")
				}
			case !errors.Is(err, tt.want):
				t.Errorf("%v, want %v", err, tt.want)
			}
			a.unchanged()
			if err := os.Remove(filepath.Join(a.inside, "d")); tt.there == "" || err != nil {
				a.checkDownload(a.inside)
			}
		})
	}
}

// errAny stands for any outcome.
var errAny = errors.New("any outcome")

// proveAskedNames asks for names that a tree does not have.
func proveAskedNames(t *testing.T) {
	a := newArena(t, 0)
	e := a.environment()
	writeTree(t, a.inside, map[string]string{"last": "inside", "Name": "one", "name": "two"})
	for name, target := range map[string]string{"link": "../outside", "deep": "/proc/self/root" +
		a.outside, "pipe": a.outside + "/pipe"} {
		if err := os.Symlink(target, filepath.Join(a.inside, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(a.inside, "last"), filepath.Join(a.inside, "hard")); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"../outside/x", a.outside + "/x", "link/x", "link/../outside/x", "deep/x", "deep/sub/z",
		"last/../../outside/x", "last\x00", "link\x00/x",
		"pipe/x", long(4096), long(5000), strings.Repeat("n", 4096), strings.Repeat("../", 1000) +
			a.outside[1:] + "/x",
	}
	for _, name := range names {
		target := filepath.Join(t.TempDir(), "target")
		if err := transfer.Download(t.Context(), e, "", []string{"last", name}, target,
			transfer.DownloadOptions{}); err == nil {
			t.Errorf("%.80q was downloaded", name)
		}
		a.checkDownload(target)
	}
	before, err := snapshot.Take(t.Context(), makeTarball(t).environment(), "",
		snapshot.Options{SpoolDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // it was only read
	after, err := snapshot.Take(t.Context(), e, "", snapshot.Options{
		Include:  names,
		SpoolDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close() //nolint:errcheck // it was only read
	var patch bytes.Buffer
	stats, err := snapshot.WritePatch(t.Context(), &patch, before, after)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range stats.Files {
		got = append(got, f.Path)
	}
	if diff := cmp.Diff([]string{"Name", "deep", "hard", "last", "link", "name", "pipe"},
		got); diff != "" {
		t.Errorf("the snapshot's files (-want +got):\n%s", diff)
	}
	if strings.Contains(patch.String(), outsideText) {
		t.Errorf("the patch holds what is outside:\n%s", patch.String())
	}
	a.unchanged()
}

// liar is an environment with nothing but an archive, whose folders list what they are told.
type liar struct {
	tarball
	names []string
}

func (b tarball) environment(names ...string) liar { return liar{b, names} }

func (l liar) Open(_ context.Context, name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (l liar) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

func (l liar) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return l.Stat(ctx, name)
}

func (l liar) ReadLink(_ context.Context, name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
}

func (l liar) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, name := range l.names {
		entries = append(entries, fs.FileInfoToDirEntry(listed(name)))
	}
	return entries, nil
}

// listed is a regular file that is only a name.
type listed string

func (n listed) Name() string     { return string(n) }
func (listed) Size() int64        { return 3 }
func (listed) Mode() fs.FileMode  { return 0o600 }
func (listed) ModTime() time.Time { return time.Time{} }
func (listed) IsDir() bool        { return false }
func (listed) Sys() any           { return nil }

// proveLiar has an environment that lists names, and sends files, which must not come into a patch.
func proveLiar(t *testing.T) {
	names := []string{
		"../up", "/absolute", "a/../../up", ".git/config", "sub/.GIT/hooks/run", "./here", "good",
		"nul\x00", "", ".", "..", "double//slash", "tail/",
	}
	var entries []tar.Header
	for _, name := range append(names, "unasked", "../unasked") {
		if name != "" && !strings.ContainsRune(name, 0) && !strings.HasSuffix(name, "/") {
			entries = append(entries, tar.Header{Name: name})
		}
	}
	empty := makeTarball(t).environment()
	full := makeTarball(t, entries...).environment(names...)
	var snapshots []*snapshot.Snapshot
	for _, l := range []liar{empty, full} {
		s, err := snapshot.Take(t.Context(), l, "", snapshot.Options{SpoolDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // it was only read
		snapshots = append(snapshots, s)
	}
	stats, err := snapshot.WritePatch(t.Context(), io.Discard, snapshots[0], snapshots[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats.Files {
		if f.Path != "good" {
			t.Errorf("the patch has a file %q", f.Path)
		}
	}
	if len(stats.Files) != 1 {
		t.Errorf("the patch has %d files, want one", len(stats.Files))
	}
}

// provePlaces lets a command change what the name of the patch leads to.
func provePlaces(t *testing.T) {
	for name, tt := range map[string]struct {
		file, script string
		// code is the exit code, and at where the patch is in the end, if it is anywhere.
		code int
		at   string
	}{
		"nothing changes": {file: "out/patch", script: `true`, at: "out/patch"},
		"the folder is made anew": {
			file: "out/patch", script: `rmdir out; mkdir out`,
			at: "out/patch",
		},
		"the folder becomes a link": {
			file: "out/patch", script: `rmdir out; ln -s ../outside out`,
			code: 125,
		},
		"a folder above becomes a link": {
			file: "a/sub/patch", script: `rm -r a; ln -s ../outside a`,
			code: 125,
		},
		"the folder is gone":    {file: "out/patch", script: `rmdir out`, code: 125},
		"the folder was a link": {file: "link/patch", script: `true`, at: "out/patch"},
		"a link changes": {
			file: "link/patch", script: `ln -sfn ../outside link`,
			at: "out/patch",
		},
		"the file becomes a link": {
			file: "out/patch", script: `ln -s ../../outside/x out/patch`,
			at: "out/patch",
		},
		"the file becomes a pipe": {file: "out/patch", script: `mkfifo out/patch`, at: "out/patch"},
		"the file becomes a device": {
			file: "out/patch", script: `ln -s /dev/full out/patch`,
			at: "out/patch",
		},
		"the file becomes a folder": {file: "out/patch", script: `mkdir out/patch`, code: 125},
		"a pipe becomes another":    {file: "pipe", script: `rm pipe; mkfifo other pipe`, code: 125},
		"a pipe becomes a link": {
			file: "pipe", script: `rm pipe; ln -s ../outside/x pipe`,
			code: 125,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 0)
			for _, dir := range []string{"out", "a/sub"} {
				if err := os.MkdirAll(filepath.Join(a.inside, dir), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Symlink("out", filepath.Join(a.inside, "link")),
				syscall.Mkfifo(filepath.Join(a.inside, "pipe"), 0o640)); err != nil {
				t.Fatal(err)
			}
			got := runCommand(t, a.inside, nil, "exec", "--timeout=1m", "--patch="+tt.file, "--", "sh", "-c",
				"echo new > new; "+tt.script)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d\n%s", got.code, tt.code, got.stderr)
			}
			a.unchanged()
			if tt.at == "" {
				return
			}
			info, err := os.Lstat(filepath.Join(a.inside, tt.at))
			if err != nil || !info.Mode().IsRegular() {
				t.Fatalf("the patch is %v, %v", info, err)
			}
			patch, err := os.ReadFile(filepath.Join(a.inside, tt.at))
			if err != nil {
				t.Fatal(err)
			}
			wantContains(t, "the patch", string(patch), "+++ b/new", "+new")
		})
	}
}
