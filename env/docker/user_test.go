package docker_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// outputAs is output for a command of a user.
func outputAs(t *testing.T, box env.Environment, user, script string) string {
	t.Helper()
	cmd := sh(script)
	cmd.User = user
	out, res, err := env.Output(t.Context(), box, cmd, env.OutputOptions{Combined: true})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s as %s: %+v, %v\n%s", script, user, res, err, out.Stdout.Bytes())
	}
	return string(out.Stdout.Bytes())
}

// TestCommandUser runs commands as other users of a container.
func TestCommandUser(t *testing.T) {
	t.Parallel()
	e := connect(t)
	box := open(t, e, docker.Config{WritableRoot: true})
	const who = `echo "$(id -u):$(id -g) $(id -G) $HOME $PWD"`
	for user, want := range map[string]string{
		"":            "10001:10001 10001 /home/sandbox /workspace\n",
		"10001":       "10001:10001 10001 /home/sandbox /workspace\n",
		"root":        "0:0 0 /root /workspace\n",
		"0":           "0:0 0 /root /workspace\n",
		"4711:815":    "4711:815 815 /tmp /workspace\n",
		"10001:10002": "10001:10002 10002 /tmp /workspace\n",
	} {
		if got := outputAs(t, box, user, who); got != want {
			t.Errorf("user %q: %s, want %s", user, got, want)
		}
	}
	protection := "grep -E '^(CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status"
	if root, own := outputAs(t, box, "root", protection), output(t, box, protection); root != own {
		t.Errorf("protection of root's commands:\n%s\nof others:\n%s", root, own)
	}
	outputAs(t, box, "root", "echo of root >/etc/here")
	if got := output(t, box, "cat /etc/here; echo x 2>/dev/null >/etc/here || echo refused"); got !=
		"of root\nrefused\n" {
		t.Errorf("a file of root: %s", got)
	}
	for user, want := range map[string]error{"nobody": fs.ErrInvalid, "-1": fs.ErrInvalid} {
		cmd := sh("exit 3")
		cmd.User = user
		_, err := box.Exec(t.Context(), cmd)
		if start := (*env.StartError)(nil); !errors.As(err, &start) || !errors.Is(err, want) {
			t.Errorf("user %q: %v", user, err)
		}
	}
}

// TestCommandUserEnds shows that nothing of a command of another user outlives it.
func TestCommandUserEnds(t *testing.T) {
	t.Parallel()
	e := connect(t)
	box := open(t, e, docker.Config{})
	sleepers := func(box env.Environment) string {
		return output(t, box, `for p in /proc/[0-9]*; do read -r line <"$p/comm"
			[ "$line" = sleep ] && grep -q "^State:.[^Z]" "$p/status" && echo "${p##*/}"
			done 2>/dev/null; :`)
	}

	cmd := sh("setsid sleep 1000 & sleep 1000")
	cmd.User, cmd.Timeout = "root", time.Second
	res, err := box.Exec(t.Context(), cmd)
	if left := sleepers(box); err != nil || !res.TimedOut || left != "" {
		t.Errorf("after a timeout: %+v, %v; left: %s", res, err, left)
	}

	// A command may kill the helper of its own user.
	cmd = sh("kill -9 $PPID")
	cmd.User = "root"
	_, err = box.Exec(t.Context(), cmd)
	if !errors.Is(err, env.ErrUnknownOutcome) || errors.Is(err, env.ErrGone) {
		t.Errorf("a command that kills its helper: %v", err)
	}
	if got := outputAs(t, box, "root", "id -u"); got != "0\n" {
		t.Errorf("the next command: %s", got)
	}

	outputAs(t, box, "4711", "sleep 1000 >/dev/null 2>&1 &")
	other, err := e.Attach(t.Context(), box.Ticket())
	if err != nil {
		t.Fatal(err)
	}
	cmd = sh("id")
	cmd.User = "root"
	if _, err := other.Exec(t.Context(), cmd); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a client that did not open the environment: %v", err)
	}
	if err := box.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	if got := outputAs(t, box, "4711", "id -u"); got != "4711\n" {
		t.Errorf("after Kill: %s", got)
	}
	if left := sleepers(other); left != "" {
		t.Errorf("after Kill: %s", left)
	}
	if err := errors.Join(other.Leave(), box.Close()); err != nil {
		t.Error(err)
	}
	if _, err := box.Exec(t.Context(), cmd); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCommandUserGone removes the container of a command.
func TestCommandUserGone(t *testing.T) {
	t.Parallel()
	host := daemons.DockerHost(t)
	e := connectTo(t, host)
	box := start(t, e, docker.Config{})
	done := envtest.Sleeping(t, box, "root")
	remove := exec.Command("docker", "-H", host, "rm", "-f", box.Container())
	if out, err := remove.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if o := <-done; !errors.Is(o.Err, env.ErrGone) || !errors.Is(o.Err, env.ErrUnknownOutcome) {
		t.Errorf("a command whose container is removed: %+v", o)
	}
	cmd := sh("id")
	cmd.User = "root"
	_, err := box.Exec(t.Context(), cmd)
	if start := (*env.StartError)(nil); !errors.As(err, &start) || !errors.Is(err, env.ErrGone) {
		t.Errorf("a command without a container: %v", err)
	}
	if err := box.Close(); err != nil {
		t.Error(err)
	}
}

// TestCommandUserLeave shows that Leave ends the commands of other users.
func TestCommandUserLeave(t *testing.T) {
	t.Parallel()
	e := connect(t)
	box := open(t, e, docker.Config{})
	outputAs(t, box, "4711", "sleep 1000 >/dev/null 2>&1 &")
	ticket := box.Ticket()
	if err := box.Leave(); err != nil {
		t.Fatal(err)
	}
	other, err := e.Attach(t.Context(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	output(t, other, `while grep -qsx sleep /proc/[0-9]*/comm; do :; done`)
}
