package env

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

// The names in indexes that git itself wrote, of each version and hash.
func TestParseIndex(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to write an index")
	}
	for _, format := range []string{"sha1", "sha256"} {
		for version := 2; version <= 4; version++ {
			t.Run(fmt.Sprintf("%s/%d", format, version), func(t *testing.T) {
				dir := t.TempDir()
				run := func(args ...string) {
					t.Helper()
					cmd := exec.Command("git", args...)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("git %v: %v\n%s", args, err, out)
					}
				}
				var want []string
				for i := range 40 {
					name := fmt.Sprintf("folder %d/%s%d", i%3, strings.Repeat("x", i*7%200), i)
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
				run("init", "-q", "--object-format="+format)
				run("add", "-A")
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
				if diff := cmp.Diff(want, indexNames(index, "")); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
				for n := range len(index) {
					indexNames(index[:n], "folder 1/")
				}
			})
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"))
	f.Add(append([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"), make([]byte, 80)...))
	f.Fuzz(func(_ *testing.T, data []byte) { indexNames(data, "x/") })
}
