package local

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       seen
		bad        bool
	}{
		{"plain", "7 (sh) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345}, false},
		{"zombie", "7 (sh) Z 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345, dead: true}, false},
		{"main thread ended, others live", "7 (sh) Z 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 3 0 12345", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345}, false},
		{"stopped", "7 (sh) T 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345, stopped: true}, false},
		{"name with parentheses", "7 (a) Z (1 2) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345}, false},
		{"name with line feed", "7 (a\n) S 1) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345\n", seen{pid: 7, ppid: 10, pgid: 20, sid: 30, start: 12345}, false},
		{"empty", "", seen{}, true},
		{"cut", "7 (sh) S 10 20", seen{}, true},
		{"parentheses the wrong way", "7 )sh( S 10 20 30", seen{}, true},
		{"no number", "7 (sh) S x 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345", seen{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(tt.line)
			if (err != nil) != tt.bad {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(seen{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (a) Z (1 2) S 10 20 30 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 12345")
	f.Add(")(")
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := parseStat(line); err != nil && s != (seen{}) {
			t.Errorf("%q: %+v with error %v", line, s, err)
		}
	})
}

// TestSendSparesNumbersUsedAgain sends to a process that has the right number and the wrong start. That it still answers
// shows that it got nothing: a process that got SIGKILL reads no more.
func TestSendSparesNumbersUsedAgain(t *testing.T) {
	cat := exec.CommandContext(t.Context(), "cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := look(cat.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := s
	other.start--
	if err := send(other, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 1)
	_, werr := in.Write([]byte("x"))
	if _, err := out.Read(answer); werr != nil || err != nil {
		t.Fatalf("another process was killed: %v, %v", werr, err)
	}
	if err := send(s, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := cat.Wait(); err == nil {
		t.Error("the process was not killed")
	}
}

// TestWithoutProc ends a group where processes cannot be listed.
func TestWithoutProc(t *testing.T) {
	e, err := New(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	attr := &os.ProcAttr{Env: os.Environ(), Files: []*os.File{e.null, e.null, e.null}}
	for name, script := range map[string]string{"gentle": "sleep 1000; :", "stubborn": "trap '' TERM; while :; do sleep 0.1; done"} {
		t.Run(name, func(t *testing.T) {
			p, err := e.startProcess("/bin/sh", []string{"sh", "-c", script}, attr, "")
			if err != nil {
				t.Fatal(err)
			}
			tr := tree{leaders: []*process{p}}
			if err := tr.terminateGroups(100e6); err != nil {
				t.Error(err)
			}
			if s, err := look(p.os.Pid); err != nil || !s.dead {
				t.Errorf("%+v, %v", s, err)
			}
			_, _, _ = p.reap()
		})
	}
}
