package attack_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// refusals are the answers of the kernel and of filters to a caller without the right.
var refusals = []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS}

// attempts returns the answers in the output of the program attempt.
func attempts(t *testing.T, out string) map[string]unix.Errno {
	t.Helper()
	all := make(map[string]unix.Errno)
	for line := range strings.Lines(out) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%q: %v in %q", name, err, out)
		}
		all[name] = unix.Errno(number)
	}
	return all
}

// TestSystemCalls makes about a hundred system calls, natively and by the entry for 32 bits. Those
// that root is not refused outside must be refused inside.
func TestSystemCalls(t *testing.T) {
	long(t)
	eachBackend(t, func(t *testing.T, b backend) {
		for _, goarch := range []string{runtime.GOARCH, "386"} {
			if goarch != "386" || runtime.GOARCH == "amd64" {
				t.Run(goarch, func(t *testing.T) { systemCalls(t, b, goarch) })
			}
		}
	})
}

func systemCalls(t *testing.T, b backend, goarch string) {
	victim := exec.CommandContext(t.Context(), "sleep", "4729")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	pid := strconv.Itoa(victim.Process.Pid)
	program := built(t, "integration/attack/attempt", goarch)
	bare := exec.CommandContext(t.Context(), program, pid)
	bare.Dir = t.TempDir()
	out, err := bare.CombinedOutput()
	if goarch != runtime.GOARCH && errors.Is(err, unix.ENOEXEC) {
		t.Skip("the kernel of this machine runs no program for " + goarch)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	proven := attempts(t, string(out))
	for name, answer := range proven {
		// The kernel of this machine lacks it, so its refusal would prove nothing.
		if slices.Contains(refusals, answer) || answer == unix.EAFNOSUPPORT {
			delete(proven, name)
		}
	}
	if len(proven) < 73 {
		t.Fatalf("only %d calls succeed outside: %s", len(proven), out)
	}
	dir := t.TempDir()
	if err := exec.Command("cp", program, filepath.Join(dir, "attempt")).Run(); err != nil {
		t.Fatal(err)
	}
	target := pid
	if b.inside != "" {
		target = b.inside
	}
	got := b.exec(t, dir, nil, `./attempt "$1"`, target)
	if got.code != 0 {
		t.Fatal(got)
	}
	answers := attempts(t, got.stdout)
	for name := range proven {
		answer, made := answers[name]
		if !made || !slices.Contains(refusals, answer) && b.harmless[name] == "" {
			t.Errorf("%s: %d, %v", name, answer, answer)
		}
	}
}
