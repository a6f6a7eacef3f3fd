package tartree

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzUnpackEntries builds archives of hostile names and links; FuzzUnpackBytes reads any bytes.
func FuzzUnpackEntries(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{1, 3, 9, 0, 14, 0, 1, 2, 3})
	f.Add([]byte{1, 0, 8, 0, 13, 0, 2, 5, 13})
	names := []string{
		"a", "b", "a/b", "b/a", "../canary", "/abs", "a/../..", ".", "..", "a/b/../../..", "./a", "a//b",
		"",
		"a/canary", "b/x", "canary", "\x00", "a/\xff", "b/../a",
	}
	kinds := []byte{
		tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeDir, tar.TypeFifo,
		tar.TypeChar, tar.TypeCont, 'Z',
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for ; len(data) >= 3; data = data[3:] {
			h := &tar.Header{
				Typeflag: kinds[int(data[0])%len(kinds)], Name: names[int(data[1])%len(names)],
				Linkname: names[int(data[2])%len(names)], Mode: int64(data[0]) << 3,
			}
			if h.Typeflag == tar.TypeReg {
				h.Size = 4
			}
			if tw.WriteHeader(h) == nil && h.Size > 0 {
				_, _ = tw.Write([]byte("evil"))
			}
		}
		_ = tw.Close()
		checkContained(t, buf.Bytes())
	})
}

func FuzzUnpackBytes(f *testing.F) {
	f.Add(raw(f, entry{kind: tar.TypeReg, name: "a", content: "x"}, entry{
		kind: tar.TypeSymlink,
		name: "b", link: "..",
	}))
	f.Add(raw(f, entry{kind: tar.TypeReg, name: strings.Repeat("n/", 60) + "n"}))
	f.Fuzz(func(t *testing.T, data []byte) { checkContained(t, data) })
}

// checkContained unpacks an archive both ways and fails if a file outside the root changed, or if a
// strictly unpacked symlink leads out of the root.
func checkContained(t *testing.T, archive []byte) {
	for _, strict := range []bool{false, true} {
		base := t.TempDir()
		writable(t, base)
		write(t, filepath.Join(base, "canary"), "alive", 0o644)
		dst := filepath.Join(base, "root")
		if err := os.Mkdir(dst, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(t.Context(), openRoot(t, dst), bytes.NewReader(archive),
			UnpackOptions{MaxBytes: 1 << 20, RefuseOutsideLinks: strict})
		if strict {
			checkLinks(t, dst)
		}
		dirs, err := os.ReadDir(base)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(base, "canary"))
		if err != nil || sha256.Sum256(content) != sha256.Sum256([]byte("alive")) || len(dirs) != 2 {
			t.Fatalf("outside the root: %v, canary %q (%v)", dirs, content, err)
		}
	}
}

func checkLinks(t *testing.T, dir string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		if to, err := filepath.EvalSymlinks(p); err == nil && to != real && !strings.HasPrefix(to,
			real+string(filepath.Separator)) {
			t.Errorf("the link %s leads to %s", p, to)
		}
		return nil
	})
}
