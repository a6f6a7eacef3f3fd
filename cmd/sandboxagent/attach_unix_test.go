//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestSilentInput checks which standard inputs a run reads: none keeps it waiting.
func TestSilentInput(t *testing.T) {
	pipe := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close(); _ = w.Close() }) // after the end of the program
		return r
	}
	socket := func(t *testing.T, text string) *os.File {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
		if text != "" {
			if _, err := ours.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Shutdown(fds[0], syscall.SHUT_WR); err != nil {
				t.Fatal(err)
			}
		}
		return theirs
	}
	device := func(t *testing.T, name string) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Skipf("this system has no %s", name)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	tests := []struct {
		name  string
		stdin func(t *testing.T) *os.File
		want  string // the part of standard error
	}{
		{"open pipe", pipe, "standard input is ignored: it is open, but had no data for 3s"},
		{
			"open socket", func(t *testing.T) *os.File { return socket(t, "") },
			"standard input is ignored",
		},
		{
			"socket with data", func(t *testing.T) *os.File { return socket(t, "data") },
			"4 bytes of standard input go with the task",
		},
		{"null", func(t *testing.T) *os.File { return device(t, os.DevNull) }, ""},
		{"endless device", func(t *testing.T) *os.File { return device(t, "/dev/zero") }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
			p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
			p.Stdin = tt.stdin(t)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			code := p.code(t)
			if code != 0 || !strings.Contains(p.stderr.String(), tt.want) ||
				tt.want == "" && strings.Contains(p.stderr.String(), "standard input") {
				t.Errorf("exit code %d: %s", code, p.stderr.String())
			}
		})
	}
}
