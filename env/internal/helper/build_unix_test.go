//go:build unix

package helper

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// elfFile writes the start of a static program for linux/riscv64, for which no helper is embedded.
func elfFile(t *testing.T, name string) string {
	t.Helper()
	const head = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x02\x00\xf3\x00\x01\x00\x00\x00"
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(head+strings.Repeat("\x00", 40)), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeGo makes the command go a shell script.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestFileOfAnotherSystem(t *testing.T) {
	if _, err := File("/bin/sh", "plan9", "amd64"); err == nil || !strings.Contains(err.Error(),
		"plan9/amd64") {
		t.Errorf("error %v", err)
	}
}

// TestDigestOfChangedFile reads a file again when it has changed.
func TestDigestOfChangedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	seen := make(map[string]bool)
	for i, text := range []string{"a", "b", "long"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			digest, err := Digest(name)
			if err != nil {
				t.Fatal(err)
			}
			seen[digest] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d digests of 3 contents", len(seen))
	}
}

// source returns a directory that isSource accepts.
func source(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+modulePath+"\n\ngo 1.26\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBuildFromDirectory builds with a go command that records how it is called.
func TestBuildFromDirectory(t *testing.T) {
	program, calls := elfFile(t, "program"), filepath.Join(t.TempDir(), "calls")
	t.Setenv("GOFLAGS", "-mod=vendor")
	fakeGo(t, `echo "$1 $2 $3 $CGO_ENABLED $GOOS $GOARCH flags=$GOFLAGS $GOWORK" >>`+calls+`
while [ "$1" != -o ]; do shift; done
cp `+program+` "$2"`)
	m := module{dir: source(t), version: "v9.9.9", cache: t.TempDir()}
	for range 2 { // each time: the source may have changed
		name, err := m.build(t.Context(), "linux", "riscv64")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := File(name, "linux", "riscv64"); err != nil {
			t.Error(err)
		}
		if f, err := openOwned(name); err != nil {
			t.Error(err)
		} else {
			_ = f.Close()
		}
	}
	want := "build -C " + m.dir + " 0 linux riscv64 flags= off\n"
	if got, err := os.ReadFile(calls); err != nil || string(got) != want+want {
		t.Errorf("go was called with\n%s%v, want twice\n%s", got, err, want)
	}
	if left, err := filepath.Glob(filepath.Join(m.cache, cacheName, "*")); err != nil ||
		len(left) != 1 {
		t.Errorf("the cache holds %q, %v", left, err)
	}
}

// TestBuildVersion downloads a published version and builds it once.
func TestBuildVersion(t *testing.T) {
	program, calls := elfFile(t, "program"), filepath.Join(t.TempDir(), "calls")
	fakeGo(t, `echo "$1" >>`+calls+`
if [ "$1" = mod ]; then echo '{"Dir": "/modules/x", "Path": "'"$4"'"}'; exit; fi
while [ "$1" != -o ]; do shift; done
cp `+program+` "$2"`)
	m := module{dir: "/nowhere", version: "v1.2.3", cache: t.TempDir()}
	for range 2 {
		if _, err := m.build(t.Context(), "linux", "riscv64"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(calls); err != nil || string(got) != "mod\nbuild\n" {
		t.Errorf("go was called with %q, %v", got, err)
	}
}

// TestBuildInModuleCache builds a version that the module cache holds once, without a download.
func TestBuildInModuleCache(t *testing.T) {
	program, calls := elfFile(t, "program"), filepath.Join(t.TempDir(), "calls")
	fakeGo(t, `echo "$1 $3" >>`+calls+`
while [ "$1" != -o ]; do shift; done
cp `+program+` "$2"`)
	dir := filepath.Join(t.TempDir(), "sandboxagent@v1.2.3")
	if err := os.Rename(source(t), dir); err != nil {
		t.Fatal(err)
	}
	m := module{dir: dir, version: "v1.2.3", cache: t.TempDir()}
	for range 2 {
		if _, err := m.build(t.Context(), "linux", "riscv64"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(calls); err != nil || string(got) != "build "+dir+"\n" {
		t.Errorf("go was called with %q, %v", got, err)
	}
}

// TestBuildFails reports why no helper could be built.
func TestBuildFails(t *testing.T) {
	dir := source(t)
	for _, tt := range []struct {
		name, script string
		m            module
		want         string
	}{
		{
			"a compiler error", "echo 'x.go:1: broken' >&2; exit 1",
			module{dir: dir},
			"go build: exit status 1: x.go:1: broken",
		},
		{"no version", "", module{}, errNoSource.Error()},
		{
			"an unknown version", `echo '{"Error": "unknown revision"}'; exit 1`,
			module{version: "v1.0.0"},
			"unknown revision",
		},
		{"an answer that is no JSON", "echo oops", module{version: "v1.0.0"}, "go mod download"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakeGo(t, tt.script)
			tt.m.cache = t.TempDir()
			_, err := tt.m.build(t.Context(), "linux", "riscv64")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		fakeGo(t, "exec sleep 60")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := (module{dir: dir, cache: t.TempDir()}).build(ctx, "linux",
			"riscv64"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no go command", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := Build(t.Context(), t.TempDir(), "linux", "riscv64"); !errors.Is(err,
			exec.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
}

// TestIsSource: a directory that others may write to, or with another module, is not built.
func TestIsSource(t *testing.T) {
	good, open, other := source(t), source(t), source(t)
	if err := os.Chmod(open, 0o777); err != nil { //nolint:gosec // the test needs it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/x\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{
		good: true, open: false, other: false, "/nowhere": false,
		"": false,
	} {
		if got := isSource(dir); got != want {
			t.Errorf("%s: %t", dir, got)
		}
	}
}

// TestBuildHere builds a helper for this machine with the Go toolchain.
func TestBuildHere(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-full: it builds a program")
	}
	here, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" || !isSource(here) {
		t.Skip("needs a checkout on Linux")
	}
	name, err := module{dir: here, cache: t.TempDir()}.build(t.Context(), "linux", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	if arch, err := Arch(name); arch != runtime.GOARCH || err != nil {
		t.Errorf("%s is for %q, %v", name, arch, err)
	}
}
