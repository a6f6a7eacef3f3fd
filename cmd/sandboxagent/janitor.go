package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/k8s"
)

const (
	// janitorArgument starts this program as the janitor of another one. It is not for users.
	janitorArgument = "__discard"
	// dismissal is written to the janitor if it has nothing to clean up.
	dismissal = "done\n"
	// lateTime bounds how long a daemon takes to finish a request of a client that has died.
	lateTime = 20 * time.Second
)

// isJanitor reports whether the program was started to clean up.
func isJanitor(args []string) bool { return len(args) == 4 && args[1] == janitorArgument }

// janitor waits until the program that started it dismisses it, and removes the environment that
// args describe if that program ended before.
func janitor(in io.Reader, args []string) int {
	line, _ := io.ReadAll(io.LimitReader(in, int64(len(dismissal))))
	if string(line) == dismissal {
		return codeDone
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lateTime)
	defer cancel()
	discard, pause := discardContainer, time.Second
	if args[0] == (&k8sBackend{}).name() {
		discard, pause = discardPod, lateTime/4 // many may do so at once
	}
	code := codeDone // no process reads an error
	for end := time.Now().Add(lateTime); time.Now().Before(end); time.Sleep(pause) {
		code = codeDone
		if discard(ctx, args[1]) != nil {
			code = codeEnvironment
		}
	}
	return code
}

// discardContainer removes the container of a session.
func discardContainer(ctx context.Context, session string) error {
	return withDocker(ctx, func(e *docker.Engine) error { return e.Discard(ctx, session) })
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

// guard is a running janitor. A nil one is none.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startJanitor starts the janitor of an environment in a new process session, so that a signal to
// the group of this program does not reach it. Where that is impossible the result is nil, and "env
// gc" removes the environment.
func startJanitor(backend, what string) *guard {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	cmd := exec.Command(self, janitorArgument, backend, what)
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

// dismissAfter dismisses the janitor after the end of the environment. If err is a cluster that did
// not answer, the environment may be left, and the janitor removes it.
func (g *guard) dismissAfter(err error) {
	var cluster *k8s.ClusterError
	if g != nil && errors.As(err, &cluster) {
		_ = g.in.Close()
		return
	}
	g.dismiss()
}

// dismiss ends the janitor, which has nothing to do.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.in, dismissal) // a janitor that has ended cannot read it, nor needs it
	_ = g.in.Close()
	_ = g.cmd.Wait()
}
