package remote

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// elfFile writes the start of a static program for linux/riscv64, for which no helper is embedded.
func elfFile(t *testing.T) string {
	t.Helper()
	const head = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x02\x00\xf3\x00\x01\x00\x00\x00"
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(head+strings.Repeat("\x00", 40)), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestResolve covers the files that a caller names.
func TestResolve(t *testing.T) {
	program := elfFile(t)
	for _, tt := range []struct {
		name   string
		helper Helper
		arch   string
		want   string // an error
	}{
		{"a binary", Helper{Binary: program}, "riscv64", ""},
		{
			"a binary for another processor",
			Helper{Binary: program},
			"s390x",
			"is a program for linux/riscv64, not for linux/s390x",
		},
		{
			"a binary that is no program",
			Helper{Binary: os.DevNull},
			"riscv64",
			"is not a program for Linux",
		},
		{"a missing binary", Helper{Binary: "/nowhere"}, "riscv64", "/nowhere"},
		{"a program", Helper{Program: program, Args: []string{"serve"}, NoBuild: true}, "riscv64", ""},
		{
			"a program for another processor",
			Helper{Program: program, NoBuild: true},
			"s390x",
			"none is embedded in this program; " + program + " is a program for linux/riscv64",
		},
		{
			"the running program",
			Helper{Program: "/proc/self/exe", NoBuild: true},
			"riscv64",
			"the running program is ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.helper.Program == "/proc/self/exe" && runtime.GOOS != "linux" {
				t.Skip("this system has no /proc")
			}
			p, err := tt.helper.Resolve(t.Context(), "linux", tt.arch)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(p.Name, "sandboxd-linux-riscv64-"+p.Digest) ||
				len(p.Args) != len(tt.helper.Args) {
				t.Errorf("%s with digest %s and arguments %q", p.Name, p.Digest, p.Args)
			}
		})
	}
}

// TestMissingHelper checks that the error has its causes and names the remedies that fit the
// platform.
func TestMissingHelper(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no go command
	_, err := Helper{Cache: t.TempDir()}.Resolve(t.Context(), "linux", "riscv64")
	var missing *MissingHelperError
	if !errors.As(err, &missing) || missing.OS != "linux" || missing.Arch != "riscv64" ||
		len(missing.Errs) != 2 || !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%+v: %v", missing, err)
	}
	const build = "CGO_ENABLED=0 GOOS=linux GOARCH=riscv64 go build " +
		"github.com/sandboxagent/sandboxagent/cmd/sandboxd"
	if text := err.Error(); !strings.Contains(text, build) || strings.Contains(text, "Self") {
		t.Errorf("for another platform: %s", text)
	}
	here := &MissingHelperError{OS: runtime.GOOS, Arch: runtime.GOARCH, Errs: missing.Errs}
	for _, part := range []string{
		"sandboxd.Main() first in main", "sandboxd.Self()", `"CGO_ENABLED=0 go build"`, "Helper.Binary",
	} {
		if !strings.Contains(here.Error(), part) {
			t.Errorf("%q lacks %s", here.Error(), part)
		}
	}
}

// TestResolveHostileName checks that a platform is a word, since a host or an image names it: a
// path would name a file in the place of a helper that was built.
func TestResolveHostileName(t *testing.T) {
	for _, arch := range []string{"", "../../x", "a b", "a\x1b[2J\r", "a;id", "$(id)", "-x", "é"} {
		_, err := Helper{NoBuild: true}.Resolve(t.Context(), "linux", arch)
		var missing *MissingHelperError
		if err == nil || !strings.Contains(err.Error(), "no helper is for a platform named") ||
			errors.As(err, &missing) || strings.ContainsAny(err.Error(), "\x1b\r") {
			t.Errorf("%q: %v", arch, err)
		}
	}
}
