package gitrepo

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// It compares with indexes that git wrote, of each version and hash.
func TestParseIndex(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to write an index")
	}
	for _, format := range []string{"sha1", "sha256"} {
		for version := 2; version <= 4; version++ {
			t.Run(fmt.Sprintf("%s/%d", format, version), func(t *testing.T) {
				dir := t.TempDir()
				run := func(args ...string) string {
					t.Helper()
					cmd := exec.Command("git", args...)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Fatalf("git %v: %v\n%s", args, err, out)
					}
					return string(out)
				}
				var want []string
				for i := range 40 {
					name := fmt.Sprintf("dir %d/%s%d", i%3, strings.Repeat("x", i*7%200), i)
					if i == 7 {
						name = "a"
					}
					want = append(want, name)
					p := filepath.Join(dir, filepath.FromSlash(name))
					if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(p, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				executables := slices.Sorted(slices.Values(want[10:13]))
				run("init", "-q", "--object-format="+format)
				run("add", "-A")
				run(append([]string{"update-index", "--chmod=+x"}, executables...)...)
				if version == 3 {
					// An intent to add needs the extended flags of version 3.
					p := filepath.Join(dir, "later")
					if err := os.WriteFile(p, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					run("add", "-N", "later")
					want = append(want, "later")
				} else {
					run("update-index", fmt.Sprintf("--index-version=%d", version))
				}
				index, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
				if err != nil {
					t.Fatal(err)
				}
				if got := binary.BigEndian.Uint32(index[4:]); got != uint32(version) {
					t.Fatalf("git wrote version %d, want %d", got, version)
				}
				slices.Sort(want)
				x, err := ParseIndex(index)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(executables, x.Executables); diff != "" {
					t.Errorf("executables (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want, x.Files); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
				for n := range len(index) {
					_, _ = ParseIndex(index[:n])
				}
				portable, err := x.Portable(index)
				if err != nil {
					t.Fatal(err)
				}
				before := run("ls-files", "--stage", "--debug")
				if err := os.WriteFile(filepath.Join(dir, ".git", "index"), portable, 0o600); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, run("ls-files", "--stage", "--debug")); diff != "" {
					t.Errorf("git reads the portable index differently (-want +got):\n%s", diff)
				}
				run("fsck", "--no-dangling") // which verifies the checksum
			})
		}
	}
}

func TestPortable(t *testing.T) {
	const head, tree = "DIRC\x00\x00\x00\x02\x00\x00\x00\x00", "TREE\x00\x00\x00\x01\x00"
	index := append([]byte(head+"UNTR\x00\x00\x00\x05/home"+tree), make([]byte, 20)...)
	x, err := ParseIndex(index)
	if err != nil {
		t.Fatal(err)
	}
	got, err := x.Portable(index)
	if err != nil {
		t.Fatal(err)
	}
	if want := head + tree; string(got[:len(got)-20]) != want {
		t.Errorf("%q, want %q and a checksum", got, want)
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"))
	f.Add(append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), make([]byte, 80)...))
	f.Add(append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00link\x00\x00\x00\x14"), make([]byte,
		40)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseIndex(data)
		if err != nil {
			return
		}
		portable, err := x.Portable(data)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseIndex(portable)
		if err != nil || len(again.Files) != len(x.Files) {
			t.Errorf("%v, %d files, had %d", err, len(again.Files), len(x.Files))
		}
	})
}
