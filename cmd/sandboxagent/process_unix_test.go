//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// process is the program as a separate process.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	// marker is an argument of the processes that the program starts, by which they are found.
	marker string
	dir    string
}

// newProcess makes the program with args, in which MARKER stands for the marker. The caller starts
// it.
func newProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	p := &process{marker: "marker-" + hex.EncodeToString(id[:]), dir: t.TempDir()}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "MARKER", p.marker)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	p.Cmd = exec.CommandContext(ctx, self, args...)
	p.Args[0] = "sandboxagent"
	p.Dir = p.dir
	p.Env = append(os.Environ(), beVar+"=sandboxagent", "SANDBOXAGENT_STATE_DIR="+filepath.Join(p.dir,
		".state"))
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout: %.2000s\nstderr: %.2000s", p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

func (p *process) code(t *testing.T) int {
	t.Helper()
	_ = p.Wait() // ProcessState has the exit code
	return p.ProcessState.ExitCode()
}

func (p *process) writeFile(t *testing.T, name, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "MARKER", p.marker)
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// await waits until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// awaitFile waits until the program has made a file.
func (p *process) awaitFile(t *testing.T, name string) {
	t.Helper()
	await(t, "the file "+name, func() bool {
		_, err := os.Stat(filepath.Join(p.dir, name))
		return err == nil
	})
}

// running returns the command lines of the processes, besides the program itself, that carry the
// marker in their arguments. Zombies have no arguments.
func (p *process) running(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, line := range commandLines(t) {
		if strings.Contains(line, p.marker) && !strings.HasPrefix(line, "sandboxagent ") {
			found = append(found, line)
		}
	}
	return found
}

// works fails the test unless a process with the marker runs, so that none later means that it has
// ended.
func (p *process) works(t *testing.T) {
	t.Helper()
	if len(p.running(t)) == 0 {
		t.Fatal("no process has the marker")
	}
}

// commandLines returns the arguments of all processes, joined by spaces.
func commandLines(t *testing.T) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		out, err := exec.Command("ps", "-eo", "args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(out), "\n")
	}
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	var lines []string
	for _, name := range names {
		line, _ := os.ReadFile(name) // the process may have ended
		lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return lines
}

// leavesNothing checks that none of its processes is left. With hurry it waits for their death,
// since a program that is interrupted twice does not.
func (p *process) leavesNothing(t *testing.T, hurry bool) {
	t.Helper()
	if hurry {
		await(t, "all processes to end", func() bool { return len(p.running(t)) == 0 })
	}
	if left := p.running(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// tree is a shell script that starts processes which ignore SIGTERM, in several ways, and waits in
// an open: a child that has not started its program yet would lose a SIGINT, and the shell would
// then wait for it.
const tree = `trap '' TERM
mkfifo f
sh -c "trap '' TERM; sleep 1000; : MARKER child" &
setsid sh -c "trap '' TERM; sleep 1000; : MARKER other session" &
touch ready
read x <f
: MARKER`

func TestExecSignals(t *testing.T) {
	// Under nohup a started program would inherit that SIGHUP is ignored. For a signal that is caught
	// here it gets the default action.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	tests := []struct {
		name    string
		signals []syscall.Signal
		want    int
	}{
		{"interrupt", []syscall.Signal{syscall.SIGINT}, 130},
		{"terminate", []syscall.Signal{syscall.SIGTERM}, 143},
		{"hang up", []syscall.Signal{syscall.SIGHUP}, 143},
		{"interrupt twice", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130},
		{"terminate and interrupt", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, 130},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "exec", "--", "sh", "-c", tree)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			p.awaitFile(t, "ready")
			await(t, "the tree", func() bool { return len(p.running(t)) >= 3 })
			started := time.Now()
			for i, s := range tt.signals {
				if i > 0 {
					time.Sleep(100 * time.Millisecond) // two signals at once may be one to the kernel
				}
				if err := p.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			want := tt.want
			if time.Since(started) > env.GraceTime/2 && len(tt.signals) > 1 {
				want = 128 + int(tt.signals[0]) // all had ended before the second one
			}
			if got := p.code(t); got != tt.want && got != want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			p.leavesNothing(t, len(tt.signals) > 1)
		})
	}
}

// TestExecInterrupted checks that the first SIGINT goes to the command, the second becomes SIGTERM,
// and the third SIGKILL.
func TestExecInterrupted(t *testing.T) {
	t.Parallel()
	// A shell waits in an open, as in tree.
	const stubborn = `trap ': >2' INT; mkfifo f; : >1; while :; do read x <f; : MARKER; done`
	for name, tt := range map[string]struct {
		script string
		times  int
		want   int
		stdout string
	}{
		"not trapped":        {`mkfifo f; : >1; read x <f; : MARKER`, 1, 130, ""},
		"trapped":            {`trap 'echo bye; exit 7' INT; : >1; sleep 1000 & wait`, 1, 7, "bye\n"},
		"ignored, SIGTERM":   {stubborn, 2, 130, ""},
		"SIGTERM is ignored": {`trap '' TERM; ` + stubborn, 3, 130, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "exec", "--", "sh", "-c", tt.script)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			for i := range tt.times {
				if i < 2 { // the third comes while the command has time to end
					p.awaitFile(t, fmt.Sprint(i+1))
				} else {
					time.Sleep(100 * time.Millisecond) // two signals at once may be one to the kernel
				}
				if err := p.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.code(t); got != tt.want || p.stdout.String() != tt.stdout {
				t.Errorf("exit code %d, stdout %q; want %d, %q", got, p.stdout.String(), tt.want, tt.stdout)
			}
			p.leavesNothing(t, tt.times > 2)
		})
	}
}

// TestExecDaemon checks that a background process of a command ends with the program, which does
// not wait for it.
func TestExecDaemon(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "exec", "--", "sh", "-c",
		`sh -c "sleep 1000; : MARKER" & echo started; until test -e go; do sleep 0.01; done`)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the background process", func() bool {
		return slices.ContainsFunc(p.running(t), func(line string) bool {
			return strings.HasPrefix(line, "sh -c sleep 1000;")
		})
	})
	p.writeFile(t, "go", "")
	if got := p.code(t); got != 0 {
		t.Errorf("exit code %d", got)
	}
	if p.stdout.String() != "started\n" {
		t.Errorf("stdout: %q", p.stdout.String())
	}
	p.leavesNothing(t, false)
}

// TestRunInterruptedTwice checks that a second signal ends a run that hangs, here because its
// events are not read.
func TestRunInterruptedTwice(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--yes", "--output=stream-json", "--model=script:s.yaml", "wait")
	p.writeFile(t, "s.yaml", `turns:
  - calls:
      - tool: shell
        args: {command: "touch ready; head -c 3000000 /dev/zero | tr '\\0' x; sleep 1000; : MARKER"}
`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // it is never read
	p.Stdout = w
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	p.awaitFile(t, "ready")
	ended := make(chan struct{})
	defer close(ended)
	go func() { // two signals at once may be one to the kernel
		for {
			_ = p.Process.Signal(syscall.SIGINT) // it may have ended
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ended:
				return
			}
		}
	}()
	if got := p.code(t); got != 130 {
		t.Errorf("exit code %d", got)
	}
	p.leavesNothing(t, true)
}

// TestClosedOutput checks that the program ends when the reader of standard output closes it.
func TestClosedOutput(t *testing.T) {
	endless := `yes MARKER`
	tests := []struct {
		name string
		args []string
		want int
	}{
		{"exec", []string{"exec", "--", "sh", "-c", endless}, 141},
		{"run", []string{"run", "--yes", "--output=stream-json", "--model=script:s.yaml", "go on"}, 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, tt.args...)
			p.writeFile(t, "s.yaml", "turns:\n  - calls: [{tool: shell, args: {command: \"until test -e "+
				"closed; do sleep 0.01; done; yes MARKER | head -c 1000000; sleep 1000; : MARKER\", "+
				"timeout_ms: 600000}}]\n")
			p.Stdout = nil
			out, err := p.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			await(t, "the command", func() bool { return len(p.running(t)) > 0 })
			_ = out.Close()
			p.writeFile(t, "closed", "")
			if got := p.code(t); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			if s := p.stderr.String(); strings.Contains(s, "goroutine") {
				t.Errorf("stderr: %s", s)
			}
			p.leavesNothing(t, false)
		})
	}
}

// TestExecBinary sends 50 MiB of random bytes through cat.
func TestExecBinary(t *testing.T) {
	t.Parallel()
	data := make([]byte, 50<<20)
	_, _ = rand.Read(data)
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	p := newProcess(t, "exec", "--", "cat")
	p.Stdin = in
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if got := p.code(t); got != 0 {
		t.Errorf("exit code %d", got)
	}
	if !bytes.Equal(p.stdout.Bytes(), data) {
		t.Errorf("%d bytes came back, and differ", p.stdout.Len())
	}
}

// TestExecOpenInput checks that exec does not wait for the end of an input that its command does
// not read.
func TestExecOpenInput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // nothing was written
	p := newProcess(t, "exec", "--", "true")
	p.Stdin = r
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if got := p.code(t); got != 0 {
		t.Errorf("exit code %d", got)
	}
}

// TestRunOpenInput checks that run does not wait for an answer on an input that is no terminal.
func TestRunOpenInput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // nothing was written
	p := newProcess(t, "run", "--sandbox=off", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
	p.Stdin = r
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if got := p.code(t); got != 2 {
		t.Errorf("exit code %d", got)
	}
}

func TestDemoWithoutGo(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "demo")
	p.Env = append(p.Env, "PATH="+t.TempDir())
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if got := p.code(t); got != 6 {
		t.Errorf("exit code %d", got)
	}
	const want = "sandboxagent: the demonstration needs the go command, which is not in PATH; " +
		"install Go from https://go.dev/dl\n"
	if got := p.stderr.String(); got != want {
		t.Errorf("stderr: %q", got)
	}
}
