package snapshot_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
)

// readTree records the files that were read.
type readTree struct {
	*local.Environment
	read []string
}

func (r *readTree) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	r.read = append(r.read, names...)
	return r.Environment.CopyOut(ctx, dir, names...)
}

// awaitStamps waits until each file has a stamp, and returns them.
func awaitStamps(t *testing.T, e *readTree) map[string]uint64 {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		stamps := make(map[string]uint64)
		young := false
		err := search.Walk(t.Context(), e, "", search.WalkOptions{Details: true},
			func(entry search.Entry) error {
				if !entry.Mode.IsDir() {
					stamps[entry.Name] = entry.Stamp
					young = young || entry.Stamp == 0
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if !young {
			return stamps
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("files have no stamps")
	return nil
}

// TestSnapshotTrustTimes changes files so that their sizes and modification times stay: they are
// read again, and no others are.
func TestSnapshotTrustTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	treefake.Write(t, dir, map[string]treefake.File{
		"kept": {Content: "kept\n"}, "d/kept": {Content: "kept\n"}, "link": {Target: "kept"},
		"written": {Content: "one\n"}, "mode": {Content: "mode\n"}, "replaced": {Content: "one\n"},
		"gone": {Content: "gone\n"}, "touched": {Content: "touched\n"},
	})
	plain, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close() //nolint:errcheck // it has no state
	e := &readTree{Environment: plain}
	take := func(o snapshot.Options) (s *snapshot.Snapshot, read []string) {
		t.Helper()
		e.read = nil
		s, err := snapshot.Take(t.Context(), e, "", o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // it was only read
		return s, slices.Sorted(slices.Values(e.read))
	}
	first, all := take(snapshot.Options{})
	trusting := snapshot.Options{Base: first, TrustTimes: true}
	check := func(what string, o snapshot.Options, want ...string) *snapshot.Snapshot {
		t.Helper()
		s, read := take(o)
		read = slices.DeleteFunc(read, func(name string) bool { // it depends on the time
			return name == "touched" && !slices.Contains(want, name)
		})
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("%s, the files that were read (-want +got):\n%s", what, diff)
		}
		return s
	}
	stamps := awaitStamps(t, e)
	take(trusting) // which has the stamps
	unchanged := check("unchanged", trusting)
	if content, err := unchanged.Content("d/kept"); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(content); err != nil || string(text) != "kept\n" {
		t.Errorf("an unread file has the content %q, %v", text, err)
	}
	check("unchanged, without trust", snapshot.Options{Base: first}, all...)

	change := func(name string, do func(path string) error) {
		t.Helper()
		path := filepath.Join(dir, name)
		before, err := os.Stat(path)
		if err == nil {
			err = do(path)
		}
		if err == nil {
			err = os.Chtimes(path, before.ModTime(), before.ModTime())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("written", func(path string) error { return os.WriteFile(path, []byte("two\n"), 0o600) })
	change("mode", func(path string) error { return os.Chmod(path, 0o755) })
	change("touched", func(string) error { return nil })
	change("replaced", func(path string) error {
		if err := os.WriteFile(path+".new", []byte("two\n"), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	changed := []string{"mode", "replaced", "written"}
	for _, when := range []string{"at once", "later"} {
		after := check("changed, "+when, trusting, changed...)
		want := []string{"gone", "mode", "replaced", "written"}
		if diff := cmp.Diff(want, snapshot.Differences(first, after)); diff != "" {
			t.Errorf("%s, the differences (-want +got):\n%s", when, diff)
		}
		for name, stamp := range awaitStamps(t, e) {
			same := name != "touched" && !slices.Contains(changed, name)
			if same != (stamp == stamps[name]) {
				t.Errorf("%s has the stamp %d after %d", name, stamp, stamps[name])
			}
		}
	}
	// What was found unchanged since is not read any more.
	if _, read := take(trusting); slices.Contains(read, "touched") {
		t.Errorf("at last %q were read", read)
	}
}
