//go:build unix

package integration_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// TestFault17Races lets names change between directories, files, pipes and links that lead outside,
// while trees are copied out, copied in and recorded. Nothing outside may be read or touched, and
// nothing may hang.
func TestFault17Races(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rounds int
		prove  func(*testing.T, *arena)
	}{
		{"F17_download_from_a_tree_that_changes", 30_000, raceDownloadFrom},
		{"F17_download_into_a_tree_that_changes", 30_000, raceDownloadInto},
		{"F17_patch_of_a_tree_that_changes", 40_000, racePatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() {
				tt.rounds /= 20
			}
			tt.prove(t, newArena(t, tt.rounds))
		})
	}
}

// outsideText is in every file that must not be read.
const outsideText = "a secret of the host"

// arena is a directory in which names change, beside a directory that must not change.
type arena struct {
	t               *testing.T
	inside, outside string
	// spare is the directory of the forms that a name does not have.
	spare string
	// shared is set if operations change the names too.
	shared bool
	rounds int
	before map[string]string
}

func newArena(t *testing.T, rounds int) *arena {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{
		t: t, rounds: rounds,
		inside: filepath.Join(base, "inside"), outside: filepath.Join(base,
			"outside"), spare: filepath.Join(base, "spare"),
	}
	for _, dir := range []string{a.inside, a.spare} {
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	writeTree(t, a.outside, map[string]string{
		"x": outsideText, "y": outsideText, "sub/z": outsideText,
	})
	if err := syscall.Mkfifo(filepath.Join(a.outside, "fifo"), 0o640); err != nil {
		t.Fatal(err)
	}
	a.before = a.state(a.outside)
	return a
}

// state describes everything below dir, and dir itself: that something came or went shows in the
// time of its directory, even if it is gone again.
func (a *arena) state(dir string) map[string]string {
	a.t.Helper()
	state := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		state[strings.TrimPrefix(name, dir)] = fmt.Sprintf("%v %v %q", info.Mode(), info.ModTime(),
			content)
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return state
}

// forms are the kinds of files that a name can become. The first ones are harmless.
var forms = []string{
	"directory", "file", "pipe", "inner link",
	"absolute link to a directory", "absolute link to a file", "relative link to a directory",
	"relative link to a file",
	"link through the root of a process", "link through a link", "link to a pipe", "link to a device",
}

const harmlessForms = 4

// target is the target of a form that is a symlink; empty for the others. Up is the path from the
// directory of the symlink to that of inside.
func (a *arena) target(form, up string) string {
	return map[string]string{
		"inner link":                         "stable",
		"absolute link to a directory":       a.outside,
		"absolute link to a file":            a.outside + "/x",
		"relative link to a directory":       up + "outside",
		"relative link to a file":            up + "outside/x",
		"link through the root of a process": "/proc/self/root" + a.outside,
		"link through a link":                filepath.Join(a.inside, "second"),
		"link to a pipe":                     a.outside + "/fifo",
		"link to a device":                   "/dev/zero",
	}[form]
}

// slot is a name that changes. Each of its forms waits in spare until it takes its turn.
type slot struct {
	a        *arena
	name, up string
	// waiting has the name in spare of each form; now is the form that the slot has.
	waiting []string
	now     int
	// usual is a form that it has more often than others.
	usual int
}

// slots makes names that take turns in all forms.
func (a *arena) slots(names ...string) []*slot {
	a.t.Helper()
	var slots []*slot
	for _, name := range names {
		s := &slot{a: a, name: filepath.Join(a.inside, name), up: strings.Repeat("../",
			strings.Count(name, "/")+1), now: -1}
		if path.Ext(name) != "" {
			s.usual = slices.Index(forms, "file")
		}
		if err := os.MkdirAll(filepath.Dir(s.name), 0o750); err != nil {
			a.t.Fatal(err)
		}
		for form := range forms {
			s.waiting = append(s.waiting, filepath.Join(a.spare, fmt.Sprintf("%s-%d", path.Base(name),
				form)))
			if err := s.mend(form); err != nil {
				a.t.Fatal(err)
			}
		}
		if err := s.become(s.usual); err != nil {
			a.t.Fatal(err)
		}
		slots = append(slots, s)
	}
	return slots
}

// mend restores a form that waits, if it was changed.
func (s *slot) mend(form int) error {
	name, target := s.waiting[form], s.a.target(forms[form], s.up)
	want := map[string]fs.FileMode{
		"directory": fs.ModeDir, "file": 0, "pipe": fs.ModeNamedPipe,
	}[forms[form]]
	if target != "" {
		want = fs.ModeSymlink
	}
	if info, err := os.Lstat(name); err == nil && info.Mode().Type() == want {
		if at, err := os.Readlink(name); target == "" || err == nil && at == target {
			return nil
		}
	}
	if err := removeAll(name); err != nil {
		return err
	}
	switch forms[form] {
	case "directory":
		for _, file := range []string{"x", "y", "sub/z"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(name, file)), 0o750); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(name, file), []byte("inside"), 0o600); err != nil {
				return err
			}
		}
		return nil
	case "file":
		return os.WriteFile(name, []byte("inside"), 0o600)
	case "pipe":
		return syscall.Mkfifo(name, 0o640)
	}
	return os.Symlink(target, name)
}

// become gives a slot another form. It repairs changes that an operation made to the old one, or at
// its name.
func (s *slot) become(form int) error {
	if s.now >= 0 {
		err := os.Rename(s.name, s.waiting[s.now])
		if s.a.shared && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			err = s.mend(s.now)
		}
		if err != nil {
			return err
		}
	}
	s.now = form
	for {
		err := os.Rename(s.waiting[form], s.name)
		if err == nil {
			return nil
		}
		// An operation has made a file of this name.
		junk := filepath.Join(s.a.spare, "junk")
		if rerr := os.Rename(s.name, junk); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return errors.Join(err, rerr)
		}
		if err := removeAll(junk); err != nil {
			return err
		}
	}
}

// removeAll removes a tree that an operation may still be writing to.
func removeAll(name string) error {
	for {
		if err := os.RemoveAll(name); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
}

// next returns a form that a slot does not have: a harmless one in every second round, so that
// operations get somewhere.
func (s *slot) next(rnd *rand.Rand, round int) int {
	for {
		form := harmlessForms + rnd.IntN(len(forms)-harmlessForms)
		if round%2 == 1 {
			form = rnd.IntN(2 * harmlessForms)
		}
		if round%2 == 1 && form >= harmlessForms {
			form = s.usual
		}
		if form != s.now {
			return form
		}
	}
}

// change returns a function that changes slots, one after the other.
func (a *arena) change(slots []*slot) func(*rand.Rand, int) error {
	return func(rnd *rand.Rand, round int) error {
		s := slots[round/2%len(slots)]
		return s.become(s.next(rnd, round))
	}
}

// race runs op again and again while swap changes names, until both have happened often enough. Op
// returns whether it could do its work, which must be so sometimes.
func (a *arena) race(
	swap func(rnd *rand.Rand, round int) error, op func(ctx context.Context, round int) bool,
) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	var swaps, ops, worked atomic.Int64
	least := int64(a.rounds / 40)
	swapped, ended := make(chan error, 1), make(chan struct{})
	go func() {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, seed))
		var err error
		for err == nil && ctx.Err() == nil && (swaps.Load() < int64(a.rounds) || ops.Load() < least) {
			err = swap(rnd, int(swaps.Load()))
			swaps.Add(1)
			// so that changes come at any moment of an operation, and not too many to get through
			for range rnd.IntN(2000) {
				_ = ctx.Err()
			}
		}
		swapped <- err
		cancel()
	}()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if op(ctx, int(ops.Load())) {
				worked.Add(1)
			}
			ops.Add(1)
		}
	}()
	for last, since := int64(-1), time.Now(); ; {
		select {
		case <-ended:
			if err := <-swapped; err != nil {
				a.t.Errorf("the names cannot be changed: %v", err)
			}
			a.t.Logf("%d changes during %d operations, of which %d did their work", swaps.Load(), ops.Load(),
				worked.Load())
			if worked.Load() == 0 {
				a.t.Error("no operation did its work")
			}
			if diff := cmp.Diff(a.before, a.state(a.outside)); diff != "" {
				a.t.Errorf("outside (-want +got):\n%s", diff)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		if now := ops.Load(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) > 30*time.Second {
			a.t.Fatalf("operation %d hangs", now)
		}
	}
}

func (a *arena) environment() env.Environment {
	a.t.Helper()
	e, err := local.New(local.Config{Dir: a.inside})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = e.Close() })
	return e
}

// raceDownloadFrom changes the tree that is downloaded.
func raceDownloadFrom(t *testing.T, a *arena) {
	e := a.environment()
	writeTree(t, a.inside, map[string]string{"stable/x": "inside", "last": "inside"})
	slots := a.slots("d", "f.txt", "stable/deep", "second")
	target := filepath.Join(filepath.Dir(a.inside), "target")
	var names [][]string
	for _, list := range []string{
		"", "d", "d/x", "d/sub/z d/y f.txt", "second/x", "stable/deep/sub last",
	} {
		names = append(names, strings.Fields(list))
	}
	a.race(a.change(slots), func(ctx context.Context, round int) bool {
		err := transfer.Download(ctx, e, "", names[round%len(names)], target, transfer.DownloadOptions{})
		if round%len(names) == 0 {
			a.checkDownload(target)
			if err := os.RemoveAll(target); err != nil {
				t.Error(err)
			}
		}
		return err == nil
	})
	a.checkDownload(target)
}

// checkDownload checks that nothing in dir comes from the outside directory, or leads to it.
func (a *arena) checkDownload(dir string) {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			if at, err := filepath.EvalSymlinks(name); err == nil && at != dir && !strings.HasPrefix(at,
				dir+"/") {
				a.t.Errorf("the download has a link to %s", at)
			}
		case d.Type().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if bytes.Contains(content, []byte(outsideText)) {
				a.t.Errorf("%s has content from outside", name)
			}
		case !d.IsDir():
			a.t.Errorf("%s is a %v", name, d.Type())
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENAMETOOLONG) {
		a.t.Error(err)
	}
}

// raceDownloadInto changes the tree that is downloaded into, which the download changes as well.
func raceDownloadInto(t *testing.T, a *arena) {
	// A directory that moves away while it is written to is no way out, as long as it stays below the
	// target.
	a.spare, a.shared = filepath.Join(a.inside, "spare"), true
	if err := os.Mkdir(a.spare, 0o750); err != nil {
		t.Fatal(err)
	}
	slots := a.slots("d", "f.txt", "d2/sub", "second")
	var trees []tarball
	for _, names := range []string{
		"d/ d/x d/y d/sub/ d/sub/z", "d/x d/sub/z f.txt",
		"d2/ d2/sub/ d2/sub/z", "f.txt second", "second/ second/x",
	} {
		var entries []tar.Header
		for name := range strings.FieldsSeq(names) {
			entries = append(entries, tar.Header{Name: name})
		}
		trees = append(trees, makeTarball(t, entries...))
	}
	a.race(a.change(slots), func(ctx context.Context, round int) bool {
		return transfer.Download(ctx, trees[round%len(trees)], "", nil, a.inside,
			transfer.DownloadOptions{}) == nil
	})
}

// tarball is an environment whose CopyOut returns one archive for all names.
type tarball []byte

func (tarball) CopyIn(context.Context, string, io.Reader) error { return errors.ErrUnsupported }

func (b tarball) CopyOut(context.Context, string, ...string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b)), nil
}

// makeTarball makes an archive. Entries without a type are files, or directories if their names end
// in a slash. A file holds three bytes.
func makeTarball(t *testing.T, entries ...tar.Header) tarball {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		switch {
		case h.Typeflag != 0:
		case strings.HasSuffix(h.Name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o700
		default:
			h.Typeflag, h.Mode, content = tar.TypeReg, 0o600, "new"
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// racePatch changes a tree of which snapshots are taken.
func racePatch(t *testing.T, a *arena) {
	e := a.environment()
	spool := t.TempDir()
	take := func(ctx context.Context, base *snapshot.Snapshot) (*snapshot.Snapshot, error) {
		return snapshot.Take(ctx, e, "", snapshot.Options{Base: base, SpoolDir: spool})
	}
	empty, err := take(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close() //nolint:errcheck // it was only read
	git(t, a.inside, "init", "-q")
	writeTree(t, a.inside, map[string]string{"stable/x": "inside", "last": "inside"})
	slots := a.slots("d", "f.txt", "stable/deep", "second", ".gitignore", ".git/index")
	full, err := take(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close() //nolint:errcheck // it was only read
	a.race(a.change(slots), func(ctx context.Context, _ int) bool {
		now, err := take(ctx, full)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("a tree that changes gives no snapshot: %v", err)
			}
			return false
		}
		var patch bytes.Buffer
		if _, err := snapshot.WritePatch(ctx, &patch, empty, now); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if bytes.Contains(patch.Bytes(), []byte(outsideText)) {
			t.Errorf("the patch has content from outside:\n%.2000s", patch.String())
		}
		if err := now.Close(); err != nil {
			t.Error(err)
		}
		return bytes.Contains(patch.Bytes(), []byte("last"))
	})
}
