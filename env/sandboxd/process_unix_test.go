//go:build unix

package sandboxd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

// withoutMain is the argv[0] with which this program does not call sandboxd.Main.
const withoutMain = "without-main"

// TestMain runs more tests at the same time than it has processors: most of them wait.
func TestMain(m *testing.M) {
	if os.Args[0] == withoutMain {
		sandboxd.Self()
		os.Exit(0)
	}
	sandboxd.Main()
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeShared()
		os.Exit(code)
	}))
}

// TestSelfWithoutMain checks that a program that forgets to call Main does not start helpers
// without end.
func TestSelfWithoutMain(t *testing.T) {
	self := sandboxd.Self()
	cmd := exec.CommandContext(t.Context(), self.Program)
	cmd.Args = append([]string{withoutMain}, append(self.Args, "serve")...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "sandboxd.Main() first") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHelperProcess is the helper that other tests start.
func TestHelperProcess(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("other tests start this in a process")
	}
	syscall.Exit(sandboxd.Run(flag.Args()))
}

// helperArgv is the command line of a helper with these arguments.
func helperArgv(t *testing.T, args ...string) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{path, "-test.run=^TestHelperProcess$", "-test.timeout=0", "--"}, args...)
}

// process is a helper that runs.
type process struct {
	*exec.Cmd
	in         io.WriteCloser
	out        io.ReadCloser
	stderrText *bytes.Buffer
	exited     chan struct{}
	spent      bool // the standard streams were given to a client
}

// launch starts a helper with pipes. When the test ends, it is killed if it has not ended.
func launch(t *testing.T, argv []string, prepare func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{
		Cmd: exec.Command(argv[0], argv[1:]...), stderrText: &bytes.Buffer{},
		exited: make(chan struct{}),
	}
	p.Env, p.Dir, p.Stderr = []string{}, "/", p.stderrText
	p.WaitDelay = 10 * time.Second
	if prepare != nil {
		prepare(p.Cmd)
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.Stdout, p.in, p.out = childIn, childOut, in, out
	err = p.Start()
	_, _ = childIn.Close(), childOut.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // ProcessState has the result
		close(p.exited)
	}()
	t.Cleanup(func() {
		_, _ = in.Close(), out.Close()
		select {
		case <-p.exited:
		case <-time.After(3 * time.Minute):
			t.Errorf("the helper does not end")
			_ = p.Process.Kill()
			<-p.exited
		}
		if t.Failed() {
			t.Logf("the stderr of the helper is %.2000q and ended with %v", p.stderrText, p.ProcessState)
		}
	})
	return p
}

// Read, Write and Close make the standard streams of the helper a stream. Close closes stdin last:
// it ends the helper, whose end closes the other pipe.
func (p *process) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *process) Close() error                { return errors.Join(p.out.Close(), p.in.Close()) }

// code waits for the end of the helper and returns its exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(3 * time.Minute):
		t.Fatal("the helper does not end")
		return 0
	}
}

// nobody is the ID of a user without rights.
const nobody = 65534

const token = "0123456789abcdef-of-the-test"

// start returns the Start message of an environment in dir.
func start(t *testing.T, dir string, vars ...string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(helper.Start{
		Dir:  dir,
		Vars: append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, vars...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// open opens a client with the streams of p first, and then with those that again returns.
func open(
	t *testing.T, p *process, cfg client.Config, again func() (io.ReadWriteCloser, error),
) (*client.Client, error) {
	t.Helper()
	cfg.Dial = func(context.Context) (io.ReadWriteCloser, error) {
		if !p.spent {
			p.spent = true
			return p, nil
		}
		if again == nil {
			return nil, env.ErrGone
		}
		return again()
	}
	return client.Open(t.Context(), cfg)
}

// serve starts a helper on pipes and opens an environment in dir.
func serve(t *testing.T, dir string) (*client.Client, *process) {
	t.Helper()
	p := launch(t, helperArgv(t, "serve"), nil)
	e, err := open(t, p, client.Config{Start: start(t, dir)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a second time, or when all is over
	return e, p
}

// serveSocket starts a helper that also listens on a socket, and opens an environment.
func serveSocket(
	t *testing.T, socket string, again func() (io.ReadWriteCloser, error), args ...string,
) (*client.Client, *process) {
	t.Helper()
	p := launch(t, helperArgv(t, append([]string{"serve", "--socket", socket}, args...)...), nil)
	cfg := client.Config{Start: start(t, t.TempDir()), Token: token, Redial: 20 * time.Second}
	e, err := open(t, p, cfg, again)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a second time, or when all is over
	return e, p
}

// socketPath returns a name for a socket, which must be short.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "s")
}

// sh returns a command that runs a script.
func sh(script string, args ...string) env.Command {
	return env.Command{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
}

// output runs cmd, which must succeed, and returns its standard output.
func output(t *testing.T, e env.Runner, cmd env.Command) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	r, err := e.Exec(t.Context(), cmd)
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%q: %+v, %v, stderr %q", cmd.Argv, r, err, stderr.String())
	}
	return stdout.String()
}

// eventually polls until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	pause := 2 * time.Millisecond
	for deadline := time.Now().Add(3 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within three minutes", what)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond) // listing all processes is expensive
	}
}

// mark returns an argument that no other process has. Processes that still have it when the test
// ends, because that failed, are killed.
func mark(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("looks for processes in /proc")
	}
	m := fmt.Sprintf("mark-%s-%d-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid(),
		time.Now().UnixNano())
	t.Cleanup(func() {
		for _, pid := range marked(m) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	return m
}

// marked returns the numbers of living processes that have the argument m.
func marked(m string) []int {
	var pids []int
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		args, err := os.ReadFile(name)
		if err == nil && bytes.Contains(append([]byte{0}, args...), []byte("\x00"+m+"\x00")) {
			var pid int
			_, _ = fmt.Sscanf(name, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// stayers is a script that leaves four processes with the argument $1, which are hard to find and
// ignore signals.
const stayers = `trap '' TERM HUP INT
loop='trap "" TERM HUP INT; while :; do sleep 1000; done'
sh -c "$loop" "$1" & setsid sh -c "$loop" "$1" & (setsid env -i /bin/sh -c "$loop" "$1" &)
sh -c "$loop" "$1"`

// stay runs stayers in the background and waits until they run.
func stay(t *testing.T, e env.Runner, m string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _, _ = e.Exec(ctx, sh(stayers, m)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// The script itself has the argument as well.
	eventually(t, "the processes", func() bool { return len(marked(m)) >= 5 })
}
