package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func create(t *testing.T) *session.Disk {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := session.Create(filepath.Join(t.TempDir(), "a", "session"),
		session.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func journalPath(s *session.Disk) string { return filepath.Join(s.Dir(), session.JournalName) }

func appendAll(t *testing.T, s *session.Disk, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := s.Append("note", map[string]string{"text": text}); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(path string) (texts []string, err error) {
	for e, err := range session.Read(path) {
		if err != nil {
			return texts, err
		}
		var d struct{ Text string }
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return texts, err
		}
		texts = append(texts, d.Text)
	}
	return texts, nil
}

func TestJournalFormat(t *testing.T) {
	s := create(t)
	appendAll(t, s, "a\nb", `,"crc":"00000000"}`)
	b, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"seq":1,"id":"1","parent":"","time":"2026-01-02T03:04:05Z","type":"note",` +
		`"data":{"text":"a\nb"},"crc":"491e2a17"}` + "\n" +
		`{"seq":2,"id":"2","parent":"1","time":"2026-01-02T03:04:05Z","type":"note",` +
		`"data":{"text":",\"crc\":\"00000000\"}"},"crc":"3cc75489"}` + "\n"
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("the journal's format is public (-want +got):\n%s", diff)
	}
	got, err := readAll(journalPath(s))
	if err != nil || !cmp.Equal(got, []string{"a\nb", `,"crc":"00000000"}`}) {
		t.Errorf("read back %q, %v", got, err)
	}
}

func TestReadIgnoresTornTail(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one", "two", "three")
	b, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{0}
	for i, c := range b {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	path := filepath.Join(t.TempDir(), "torn")
	for cut := range b {
		if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for whole+1 < len(ends) && ends[whole+1] <= cut {
			whole++
		}
		got, err := readAll(path)
		if err != nil || len(got) != whole {
			t.Fatalf("cut at byte %d of %d: %d entries, %v; want the %d whole ones", cut, len(b), len(got),
				err, whole)
		}
	}
}

func TestReadReportsDamage(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one", "two", "three")
	b, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged")
	for at := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[at] ^= 1 << bit
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(path)
			var corrupt *session.CorruptError
			want := bytes.Count(b[:at], []byte("\n"))
			if !errors.As(err, &corrupt) || len(got) != want || corrupt.Line != want+1 {
				t.Fatalf("flipped bit %d of byte %d: %v after %d entries, want damage after %d", bit, at,
					err, len(got), want)
			}
		}
	}
}

// TestReadReportsDamagedEnd has a damaged line end before a line that is cut.
func TestReadReportsDamagedEnd(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one", "two", "three")
	b, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	second := bytes.TrimSuffix(lines[1], []byte("\n"))
	path := filepath.Join(t.TempDir(), "damaged")
	for cut := range lines[2] {
		bad := slices.Concat(lines[0], second, []byte("\v"), lines[2][:cut])
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		var corrupt *session.CorruptError
		got, err := readAll(path)
		if !errors.As(err, &corrupt) || corrupt.Line != 2 || len(got) != 1 {
			t.Fatalf("with %d bytes after it: %q, %v", cut, got, err)
		}
	}
}

func TestReadReportsMissingEntry(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one", "two", "three")
	b, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	path := filepath.Join(t.TempDir(), "hole")
	if err := os.WriteFile(path, []byte(lines[0]+lines[2]), 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *session.CorruptError
	if _, err := readAll(path); !errors.As(err, &corrupt) || corrupt.Line != 2 {
		t.Errorf("a removed entry is reported as %v", err)
	}
}

func TestFailedWriteIsFinal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full")
	}
	dir := t.TempDir()
	s, err := session.CreateAt(filepath.Join(dir, "s"), "/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	first := s.Append("note", "x")
	if first == nil {
		t.Fatal("a write to a full disk succeeded")
	}
	if again := s.Append("note", "y"); !errors.Is(again, first) {
		t.Errorf("after a failed write Append returns %v, want %v", again, first)
	}
	if err := s.Sync(); !errors.Is(err, first) {
		t.Errorf("after a failed write Sync returns %v, want %v", err, first)
	}
}

func TestClosed(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append("note", "x"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
}

func TestConcurrentAppend(t *testing.T) {
	s := create(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 20 {
				if err := s.Append("note", map[string]string{"text": fmt.Sprint(i, j)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := readAll(journalPath(s))
	if err != nil || len(got) != 400 {
		t.Errorf("%d entries, %v; want 400", len(got), err)
	}
}

func TestDirectoryIsPrivateAndNew(t *testing.T) {
	s := create(t)
	if runtime.GOOS != "windows" {
		for path, want := range map[string]fs.FileMode{s.Dir(): 0o700, journalPath(s): 0o600} {
			fi, err := os.Stat(path)
			if err != nil || fi.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v (%v)", path, fi.Mode().Perm(), want, err)
			}
		}
	}
	if _, err := session.Create(s.Dir(), session.Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second session in the same directory: %v", err)
	}
}

func TestOutputs(t *testing.T) {
	s := create(t)
	for _, id := range []string{
		"call_1", "../../etc/passwd", "call_1", strings.Repeat("x", 5000), "",
	} {
		out, err := s.Spool().Create(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(out, "output of %.20s", id); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if rel, err := filepath.Rel(s.Dir(), out.Name()); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("output of %.20q is stored at %s", id, out.Name())
		}
		r, err := s.OpenOutput(id)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		_ = r.Close()
		if want := fmt.Sprintf("output of %.20s", id); err != nil || string(b) != want {
			t.Errorf("output of %.20q: %q, %v", id, b, err)
		}
	}
	if _, err := s.OpenOutput("unknown"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown output: %v", err)
	}
}

func TestBackups(t *testing.T) {
	s := create(t)
	names := map[string]bool{}
	for i, name := range []string{"/work/a.txt", "/work/a.txt", "../..\x00", "a:b/c*d"} {
		want := fmt.Sprint("content ", i)
		file, err := s.Backups().Keep(name, strings.NewReader(want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want || names[file] ||
			filepath.Dir(filepath.Dir(file)) != s.Dir() {
			t.Errorf("%q is in %s: %q, %v", name, file, got, err)
		}
		names[file] = true
	}
	if _, err := s.Backups().Keep("x", iotest.ErrReader(fs.ErrPermission)); !errors.Is(err,
		fs.ErrPermission) {
		t.Errorf("unreadable content returns %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), "backups", "*")); len(left) != len(names) {
		t.Errorf("the files are %q", left)
	}
}
