package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/k8s"
)

const (
	// janitorArgument starts this program as the janitor of another one. It is not for users.
	janitorArgument = "__discard"
	// added and dropped precede a session in a line for the janitor.
	added, dropped = "+", "-"
	// lateTime bounds how long a daemon takes to finish a request of a client that has died.
	lateTime = 20 * time.Second
)

// isJanitor reports whether the program was started to clean up.
func isJanitor(args []string) bool { return len(args) == 4 && args[1] == janitorArgument }

// janitor waits until the program that started it ends, or closes in, and removes the environments
// that are left then. Args are the backend, and where its environments are.
func janitor(in io.Reader, args []string) int {
	left := leftSessions(in)
	if len(left) == 0 {
		return codeDone
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lateTime)
	defer cancel()
	discard, pause := discardContainers, time.Second
	if args[0] == (&k8sBackend{}).name() {
		discard, pause = discardPods, lateTime/4 // many may do so at once
	}
	code := codeDone // no process reads an error
	for end := time.Now().Add(lateTime); time.Now().Before(end); time.Sleep(pause) {
		code = codeDone
		if discard(ctx, args[1], left) != nil {
			code = codeEnvironment
		}
	}
	return code
}

// leftSessions reads lines about sessions and returns those that were added and not dropped.
func leftSessions(in io.Reader) []string {
	left := make(map[string]bool)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if session, ok := strings.CutPrefix(lines.Text(), added); ok {
			left[session] = true
		} else if session, ok := strings.CutPrefix(lines.Text(), dropped); ok {
			delete(left, session)
		}
	}
	return slices.Sorted(maps.Keys(left))
}

// discardContainers removes the containers of sessions.
func discardContainers(ctx context.Context, _ string, sessions []string) error {
	return withDocker(ctx, func(e *docker.Engine) (err error) {
		for _, session := range sessions {
			err = errors.Join(err, e.Discard(ctx, session))
		}
		return err
	})
}

// passes reports whether the janitor of a backend needs an environment variable. For containers it
// gets those that select the daemon, and no secret. The program that logs in to a cluster may need
// any but the keys of models.
func passes(backend, variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	if backend == (&k8sBackend{}).name() {
		return !strings.HasSuffix(name, "_API_KEY")
	}
	return strings.HasPrefix(name, "DOCKER_") ||
		slices.Contains([]string{"HOME", "PATH", "SSH_AUTH_SOCK", "USERPROFILE", "SystemRoot"}, name)
}

// guard is a running janitor, which is safe for concurrent use. A nil one is none.
type guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
	// sessions is the number of those that were added and not dropped.
	sessions int
}

// startJanitor starts a janitor of environments in a new process session, so that a signal to the
// group of this program does not reach it. Where that is impossible the result is nil, and "env gc"
// removes the environments.
func startJanitor(backend, where string) *guard {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	cmd := exec.Command(self, janitorArgument, backend, where)
	cmd.Dir = string(os.PathSeparator)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return !passes(backend, v) })
	detach(cmd)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil
	}
	return &guard{cmd: cmd, in: in}
}

// add has the janitor remove an environment that is there when this program ends.
func (g *guard) add(session string) { g.write(added, session, 1) }

// drop follows the end of an environment. If err is a cluster that did not answer, the environment
// may be left, and the janitor still removes it.
func (g *guard) drop(session string, err error) {
	if cluster := (*k8s.ClusterError)(nil); !errors.As(err, &cluster) {
		g.write(dropped, session, -1)
	}
}

func (g *guard) write(what, session string, change int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions += change
	_, _ = io.WriteString(g.in, what+session+"\n") // a janitor that has ended cannot read it
}

// dismiss ends the janitor, after it has removed the environments that are left.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.in.Close()
	if g.sessions == 0 { // else it takes its time
		_ = g.cmd.Wait()
	}
}
