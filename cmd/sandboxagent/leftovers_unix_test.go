//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPatchAfterBackground checks that a background process cannot change files once the patch is
// being taken: the patch equals the final state of the files.
func TestPatchAfterBackground(t *testing.T) {
	// Each step adds a line while the snapshot is taken, which many files make slow. A patch of more
	// than 8 MiB would have no lines.
	const busy = `mkdir many; i=0; while test $i -lt 500; do echo $i >many/$i; i=$((i+1)); done
sh -c 'trap "" TERM; n=0; while :; do n=$((n+1))
  test $n -gt 900000 || echo $n >>z.txt; done; : MARKER' >/dev/null 2>&1 &
until test -s z.txt -a -e go; do :; done`
	tests := []struct {
		name string
		args []string
	}{
		{"exec", []string{"exec", "--patch=p.diff", "--workdir=w", "--", "sh", "-c", busy}},
		{"run", []string{
			"run", "--yes", "--patch=p.diff", "--workdir=w", "--model=script:s.yaml", "a task",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, tt.args...)
			if err := os.Mkdir(filepath.Join(p.dir, "w"), 0o700); err != nil {
				t.Fatal(err)
			}
			call, err := json.Marshal(map[string]any{"command": busy, "timeout_ms": 600_000})
			if err != nil {
				t.Fatal(err)
			}
			p.writeFile(t, "s.yaml", "turns:\n"+
				"  - calls: [{tool: shell, args: "+string(call)+"}]\n"+
				"  - text: done\n")
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			p.awaitFile(t, filepath.Join("w", "z.txt"))
			p.works(t)
			p.writeFile(t, filepath.Join("w", "go"), "")
			if got := p.code(t); got != 0 {
				t.Errorf("exit code %d", got)
			}
			content, err := os.ReadFile(filepath.Join(p.dir, "w", "z.txt"))
			if err != nil {
				t.Fatal(err)
			}
			diff, err := os.ReadFile(filepath.Join(p.dir, "p.diff"))
			if err != nil {
				t.Fatal(err)
			}
			_, after, ok := strings.Cut(string(diff), "b/z.txt\n@@")
			_, added, _ := strings.Cut(after, "\n")
			if want := "+" + strings.ReplaceAll(strings.TrimSuffix(string(content), "\n"), "\n", "\n+") +
				"\n"; !ok || added != want {
				t.Errorf("the patch has %d bytes of z.txt, want %d", len(added), len(want))
			}
			p.leavesNothing(t, false)
		})
	}
}

// TestDemoInterrupted checks that a demonstration which is interrupted while go builds leaves
// nothing behind.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the demonstration needs go")
	}
	p := newProcess(t, "demo")
	scratch := t.TempDir()
	// an empty cache makes go build for long
	p.Env = append(p.Env, "TMPDIR="+scratch, "GOCACHE="+t.TempDir())
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a build", func() bool {
		builds, err := filepath.Glob(filepath.Join(scratch, "sandboxagent-demo-*", "tmp", "go-build*"))
		return err == nil && len(builds) > 0
	})
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := p.code(t); got != 130 {
		t.Errorf("exit code %d", got)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
