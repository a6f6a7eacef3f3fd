package helper

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sizeLimit is how large a helper may be.
const sizeLimit = 8 << 20

// platforms are those that make build builds helpers for.
var platforms = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// TestEmbeddedHelpers checks the helpers that are built in, if any.
func TestEmbeddedHelpers(t *testing.T) {
	for arch, machine := range platforms {
		t.Run(arch, func(t *testing.T) {
			h, err := Find("linux", arch)
			if errors.Is(err, ErrNotEmbedded) {
				t.Skip(err.Error())
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := h.Open()
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(t.TempDir(), "helper")
			f, err := os.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(f, r)
			if err := errors.Join(err, f.Close(), r.Close()); err != nil {
				t.Fatal(err)
			}
			checkHelper(t, name, machine)
			if of, err := Arch(name); of != arch || err != nil {
				t.Errorf("it is for %q, %v", of, err)
			}
			if digest, err := Digest(name); digest != h.Digest || err != nil {
				t.Errorf("its digest is %q, %v", digest, err)
			}
		})
	}
}

// TestBuild builds the helper as the Makefile does, here and in a copy of the source at another
// place that has helpers of an earlier build embedded, and compares.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Skip("there is no checkout here")
	}
	pattern := regexp.MustCompile(
		`(?s)CGO_ENABLED=0 GOOS=\$\$os GOARCH=\$\$arch (.*?) \$\(GO\) (build .*?) -o `)
	recipe := pattern.FindSubmatch(makefile)
	if recipe == nil {
		t.Fatal("the Makefile lacks the command that builds helpers")
	}
	build := strings.ReplaceAll(string(recipe[1])+" go "+string(recipe[2]), "\\\n", " ")
	copied := t.TempDir()
	for _, dir := range []string{"cmd/sandboxd", "env", "internal"} {
		if err := os.CopyFS(filepath.Join(copied, dir), os.DirFS("../../../"+dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile("../../../" + file)
		if err := errors.Join(err, os.WriteFile(filepath.Join(copied, file), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ballast := filepath.Join(copied, "env/internal/helper/bin",
		"sandboxd-linux-amd64-"+strings.Repeat("0", 64)+".gz")
	if err := os.WriteFile(ballast, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for arch, machine := range platforms {
		t.Run(arch, func(t *testing.T) {
			var digests []string
			for i, dir := range []string{"../../..", copied} {
				name := filepath.Join(t.TempDir(), fmt.Sprintf("helper%d", i))
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", build+` -o "$0" ./cmd/sandboxd`, name)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", build, err, out)
				}
				checkHelper(t, name, machine)
				data, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				digests = append(digests, fmt.Sprintf("%x", sha256.Sum256(data)))
			}
			if digests[0] != digests[1] {
				t.Errorf("the same source gave %v", digests)
			}
		})
	}
}

// checkHelper checks that a program is small, static and for the machine.
func checkHelper(t *testing.T, name string, machine elf.Machine) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > sizeLimit {
		t.Errorf("it has %d bytes, more than %d", info.Size(), sizeLimit)
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if f.Machine != machine {
		t.Errorf("it is for %s", f.Machine)
	}
	if libraries, err := f.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("it needs %v", libraries)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is not static")
		}
	}
}
