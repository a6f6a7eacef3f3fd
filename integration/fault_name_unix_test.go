//go:build unix

package integration_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// TestFault17Names passes names that lead outside, or that no system can hold, to everything that
// writes on the host or reads a tree.
func TestFault17Names(t *testing.T) {
	for _, tt := range []struct {
		name  string
		prove func(*testing.T)
	}{
		{"F17_archives_that_are_downloaded", proveArchives},
		{"F17_requested_names", proveRequestedNames},
		{"F17_file_of_a_patch", provePatchFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.prove(t)
		})
	}
}

// unchanged checks that the outside directory has not changed.
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

// proveArchives downloads archives beyond those of env/internal/tartree's tests: names at the
// limits of the system, and entries where the target directory has a symlink already.
func proveArchives(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name} }
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
	}
	of := func(entries ...tar.Header) []tar.Header { return entries }
	other := errors.New("any other error")
	for name, tt := range map[string]struct {
		entries []tar.Header
		// symlink is the target of the symlink d before the download; empty for no symlink.
		symlink string
		want    error
	}{
		"NUL in a name":             {of(file("\u00e9#/../../outside/x")), "", tar.ErrHeader},
		"NUL in a target":           {of(link("d", "\u00e9#")), "", tar.ErrHeader},
		"a name of 4,096 bytes":     {of(file(long(4096))), "", nil},
		"a name of 4,097 bytes":     {of(file(long(4097))), "", other},
		"an element of 4,096 bytes": {of(file(strings.Repeat("n", 4096))), "", syscall.ENAMETOOLONG},
		"a target of 4,095 bytes":   {of(link("d", long(4095)), file("d/x")), "", env.ErrEscapes},
		"names that differ in case": {of(file("Name"), file("name"), file("NAME/x")), "", errAny},
		"a symlink above by a symlink": {
			of(file("e/f/"), link("e/f/up", ".."), link("d", "e/f/up/../../outside")), "", env.ErrEscapes,
		},
		"a hard link through a symlink": {of(hard("e", "d/x")), "../outside", env.ErrEscapes},
		"a hard link to a symlink":      {of(hard("e", "d")), "../outside/x", other},
		"a hard link over a symlink":    {of(file("e"), hard("d", "e")), "../outside/x", nil},
		"a directory over a symlink":    {of(file("d/")), "../outside", env.ErrEscapes},
		"a file below a symlink":        {of(file("d/x")), "/proc/self/root/OUTSIDE", env.ErrEscapes},
		"a file over a symlink":         {of(file("d")), "../outside/x", nil},
		"a symlink over a symlink":      {of(link("d", "e")), "../outside/x", nil},
		"a file over one to a FIFO":     {of(file("d")), "../outside/fifo", nil},
		"a file below one to a FIFO":    {of(file("d/x")), "../outside/fifo", env.ErrEscapes},
		"a hard link to one to a FIFO":  {of(hard("e", "d")), "../outside/fifo", other},
		"a FIFO":                        {of(tar.Header{Typeflag: tar.TypeFifo, Name: "d"}), "", other},
		"a device over one to a device": {
			of(tar.Header{Typeflag: tar.TypeChar, Name: "d"}), "/dev/zero", other,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 0)
			archive := bytes.ReplaceAll(makeTarball(t, tt.entries...), []byte("\u00e9#"),
				[]byte("\u00e9\x00"))
			if tt.symlink != "" {
				target := strings.Replace(tt.symlink, "/OUTSIDE", a.outside, 1)
				if err := os.Symlink(target, filepath.Join(a.inside, "d")); err != nil {
					t.Fatal(err)
				}
			}
			err := transfer.Download(t.Context(), tarball(archive), "", nil, a.inside,
				transfer.DownloadOptions{})
			switch {
			case errors.Is(tt.want, errAny): // depends on the file system
			case errors.Is(tt.want, other):
				if err == nil {
					t.Error("the archive was accepted")
				}
			case !errors.Is(err, tt.want):
				t.Errorf("%v, want %v", err, tt.want)
			}
			a.unchanged()
			if err := os.Remove(filepath.Join(a.inside, "d")); tt.symlink == "" || err != nil {
				a.checkDownload(a.inside)
			}
		})
	}
}

// errAny stands for any outcome.
var errAny = errors.New("any outcome")

// proveRequestedNames downloads names that a tree does not have.
func proveRequestedNames(t *testing.T) {
	a := newArena(t, 0)
	e := a.environment()
	writeTree(t, a.inside, map[string]string{"last": "inside", "Name": "one", "name": "two"})
	for name, target := range map[string]string{
		"link": "../outside", "deep": "/proc/self/root" + a.outside, "pipe": a.outside + "/fifo",
	} {
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
	before, err := snapshot.Take(t.Context(), newArena(t, 0).environment(), "",
		snapshot.Options{SpoolDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // it was only read
	after, err := snapshot.Take(t.Context(), e, "", snapshot.Options{
		Include: names, SpoolDir: t.TempDir(),
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
		t.Errorf("the patch has content from outside:\n%s", patch.String())
	}
	a.unchanged()
}

// provePatchFile has a command replace the file of the patch, or a directory above it.
func provePatchFile(t *testing.T) {
	for name, tt := range map[string]struct {
		file, script string
		code         int
		// at is the file that holds the patch afterwards; empty for none.
		at string
	}{
		"nothing changes":              {"out/patch", `true`, 0, "out/patch"},
		"its parent is created again":  {"out/patch", `rmdir out; mkdir out`, 0, "out/patch"},
		"its parent becomes a symlink": {"out/patch", `rmdir out; ln -s ../outside out`, 125, ""},
		"a higher parent does":         {"a/sub/patch", `rm -r a; ln -s ../outside a`, 125, ""},
		"its parent is removed":        {"out/patch", `rmdir out`, 125, ""},
		"its parent was a symlink":     {"link/patch", `true`, 0, "out/patch"},
		"that symlink changes":         {"link/patch", `ln -sfn ../outside link`, 0, "out/patch"},
		"it becomes a symlink":         {"out/patch", `ln -s ../../outside/x out/patch`, 0, "out/patch"},
		"it becomes a FIFO":            {"out/patch", `mkfifo out/patch`, 0, "out/patch"},
		"it becomes a device":          {"out/patch", `ln -s /dev/full out/patch`, 0, "out/patch"},
		"it becomes a directory":       {"out/patch", `mkdir out/patch`, 125, ""},
		"a FIFO becomes another":       {"fifo", `rm fifo; mkfifo other fifo`, 125, ""},
		"a FIFO becomes a symlink":     {"fifo", `rm fifo; ln -s ../outside/x fifo`, 125, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 0)
			for _, dir := range []string{"out", "a/sub"} {
				if err := os.MkdirAll(filepath.Join(a.inside, dir), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Symlink("out", filepath.Join(a.inside, "link")),
				syscall.Mkfifo(filepath.Join(a.inside, "fifo"), 0o640)); err != nil {
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
