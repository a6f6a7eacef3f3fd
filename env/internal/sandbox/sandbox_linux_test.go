package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// TestMain is also the program that is confined, and what that starts.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "confined":
		os.Exit(confined(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "bare":
		os.Exit(script(os.Args[2], os.TempDir()))
	case len(os.Args) > 2 && os.Args[1] == "do":
		if err := do(os.Args[2], os.Args[3:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// confined enters a plan and runs a script.
func confined(args []string) int {
	p, err := ReceivePlan()
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // as the helper is
	}
	if err == nil {
		unix.CloseOnExec(programFile)
		err = Enter(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return script(args[0], p.Temp)
}

// script runs a script, in which $DO is this program, and returns its exit code.
func script(text, temp string) int {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(
		os.Environ(), "DO=/proc/self/fd/3 do", "TMPDIR="+temp, "CONFINED="+strconv.Itoa(os.Getpid()),
	)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return cmd.ProcessState.ExitCode()
}

// do is what scripts cannot do.
func do(what string, args []string) error {
	switch what {
	case "dial":
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		c, err := new(net.Dialer).DialContext(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("hello"))
		return errors.Join(err, c.Close())
	case "ptrace", "kill":
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		if what == "kill" {
			return syscall.Kill(pid, 0)
		}
		return unix.PtraceSeize(pid) // which does not stop it
	case "mount":
		return unix.Mount("none", args[0], "tmpfs", 0, "")
	case "opensuid":
		fd, err := unix.Open(args[0], unix.O_CREAT|unix.O_WRONLY, 0o4755)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	case "userns":
		err := unix.Unshare(unix.CLONE_NEWUSER)
		if errors.Is(err, unix.EINVAL) { // a program with threads gets it
			attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
			err = (&exec.Cmd{Path: "/bin/true", SysProcAttr: attr}).Run()
		}
		return err
	case "euid":
		fmt.Println(os.Geteuid())
		return nil
	case "vsock":
		_, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
		return err
	case "listen":
		if len(args) > 1 { // the second name of a directory, in this process alone
			if err := unix.Mount(args[1], args[2], "", unix.MS_BIND, ""); err != nil {
				return err
			}
		}
		l, err := net.Listen("unix", args[0])
		if err != nil {
			return err
		}
		fmt.Println("listening")
		_, err = io.Copy(io.Discard, os.Stdin)
		return errors.Join(err, l.Close())
	case "datagram":
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fds[0], []byte("hello"), 0, &unix.SockaddrUnix{Name: args[0]})
	case "pair":
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	}
	return fmt.Errorf("no such thing: %s", what)
}

// world is a part of the file system with a home, a repository to work in, and things outside.
type world struct {
	root, home, work, out string
	policy                Policy
	vars                  map[string]string
	uid                   int // -1: this user
	homes                 []string
}

// newWorld creates a world. It is not in a temporary directory, since a confined program has a
// private one.
func newWorld(t *testing.T) *world {
	t.Helper()
	above := "/srv"
	if os.Getuid() != 0 {
		var err error
		if above, err = os.UserCacheDir(); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.MkdirTemp(above, "sandbox-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	w := &world{
		root: root,
		home: root + "/home",
		work: root + "/work",
		out:  root + "/out",
		uid:  -1,
		vars: map[string]string{},
	}
	for _, dir := range []string{"home/.ssh", "home/.config", "home/go", "work/.git/hooks", "out"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"home/.ssh/id", "home/.netrc", "home/plain", "home/go/file", "out/file", "work/file",
		"work/.git/config", "work/.git/HEAD", "work/sandboxagent.yaml",
	} {
		w.write(t, name)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	w.policy, w.homes = Policy{Dir: w.work}, []string{w.home}
	return w
}

func (w *world) write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.root, name), []byte("content of "+name+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
}

// as makes another user the owner of everything and confines that user.
func (w *world) as(t *testing.T, uid int) {
	t.Helper()
	w.uid = uid
	err := filepath.WalkDir(w.root, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, uid, uid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a script in the world. It returns what it printed, to either stream, and the exit code.
func (w *world) run(t *testing.T, by Mechanism, script string) (string, int) {
	t.Helper()
	return w.start(t, w.plan(t, by), script)
}

// plan returns the plan of the world's policy.
func (w *world) plan(t *testing.T, by Mechanism) Plan {
	t.Helper()
	p, err := New(w.policy, by, w.homes, func(name string) string { return w.vars[name] })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.unlock)
	if by == Landlock {
		p.Temp = t.TempDir()
		if w.uid >= 0 {
			if err := errors.Join(os.Chown(p.Temp, w.uid, w.uid), os.Chmod(filepath.Dir(p.Temp),
				0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p
}

func (w *world) start(t *testing.T, p Plan, script string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close() //nolint:errcheck // it was only read
	cmd, release, err := p.Command(program, Files{}, "confined", script)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return w.finish(t, cmd)
}

// bare runs a script without a sandbox, in a private mount namespace.
func (w *world) bare(t *testing.T, script string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "bare", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return w.finish(t, cmd)
}

// finish runs a command in the world to its end.
func (w *world) finish(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, "/"
	cmd.Env = []string{
		"PATH=/usr/bin:/bin:/usr/sbin:/sbin",
		"OUT=" + w.out,
		"WORK=" + w.work,
		"HOME=" + w.home,
		"ROOT=" + w.root,
		"GORACE=atexit_sleep_ms=0",
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = w.credential()
	}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// credential returns the attributes of a process of the confined user.
func (w *world) credential() *syscall.SysProcAttr {
	if w.uid < 0 {
		return nil
	}
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)},
	}
}

// content returns what a file outside holds now.
func (w *world) content(name string) string {
	data, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil {
		return "-"
	}
	return string(data)
}

// each runs a test with each mechanism, as root if possible, and as an ordinary user, in parallel.
func each(t *testing.T, test func(t *testing.T, w *world, by Mechanism)) {
	inTurn(t, func(t *testing.T, w *world, by Mechanism) {
		t.Parallel()
		test(t, w, by)
	})
}

// inTurn runs a test as each does, one case after the other.
func inTurn(t *testing.T, test func(t *testing.T, w *world, by Mechanism)) {
	for _, by := range Mechanisms() {
		for _, user := range []string{"root", "user"} {
			t.Run(string(by)+"/"+user, func(t *testing.T) {
				w := newWorld(t)
				switch {
				case user == "user" && os.Getuid() == 0:
					w.as(t, nobody)
				case user == "root" && os.Getuid() != 0:
					t.Skip("needs root")
				}
				need(t, by)
				test(t, w, by)
			})
		}
	}
}

// need skips a test where a mechanism is not to be had.
func need(t *testing.T, by Mechanism) {
	t.Helper()
	err := Available(by)
	if err == nil {
		return
	}
	if strings.Contains(os.Getenv("SANDBOXAGENT_REQUIRE"), "sandbox") {
		t.Fatalf("SANDBOXAGENT_REQUIRE: %v", err)
	}
	t.Skip(err)
}

// TestAllowed does what work needs.
func TestAllowed(t *testing.T) {
	for name, script := range map[string]string{
		"write": `echo x >"$WORK/new" && cat "$WORK/new"`,
		"directories and links": `mkdir -p "$WORK/a/b" && ln -s b "$WORK/a/l" && ` +
			`echo x >"$WORK/a/l/f" && ln "$WORK/a/b/f" "$WORK/hard" && mv "$WORK/a/b/f" "$WORK/f" && ` +
			`rm -r "$WORK/a"`,
		"temporary files": `f=$(mktemp) && echo x >"$f" && cat "$f" && rm "$f"`,
		"run what was made": `printf '#!/bin/sh\necho x\n' >"$WORK/run" && ` +
			`chmod +x "$WORK/run" && "$WORK/run" && cp "$WORK/run" "$TMPDIR/run" && "$TMPDIR/run"`,
		"read elsewhere": `cat "$OUT/file" "$HOME/go/file" /etc/passwd >/dev/null && ` +
			`ls /usr/bin >/dev/null`,
		"devices": `echo x >/dev/null && head -c 1 /dev/urandom >/dev/null && ` +
			`head -c 1 /dev/zero >/dev/null`,
		"a repository":           `echo x >"$WORK/.git/index" && mkdir "$WORK/.git/objects"`,
		"a pair of sockets":      `$DO pair`,
		"processes and pipes":    `sh -c 'seq 100 | tail -1 | grep -qx 100 & wait'`,
		"threads and signals":    `sleep 100 & kill $! && ! wait $!`,
		"what it is to itself":   `grep -q . /proc/self/status && readlink /proc/self/exe >/dev/null`,
		"another user's program": `$DO euid`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *world, by Mechanism) {
				if out, code := w.run(t, by, "set -e; "+script); code != 0 {
					t.Errorf("exit code %d, %s", code, out)
				}
			})
		})
	}
}
