package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/docker"
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
func isJanitor(args []string) bool { return len(args) == 3 && args[1] == janitorArgument }

// janitor waits until the program that started it has started a container, and removes the remains
// of the container if that program ended before.
func janitor(in io.Reader, session string) int {
	line, _ := io.ReadAll(io.LimitReader(in, int64(len(dismissal))))
	if string(line) == dismissal {
		return codeDone
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lateTime)
	defer cancel()
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return codeEnvironment // no process reads an error
	}
	defer engine.Close() //nolint:errcheck // the connection has served
	code := codeDone
	for end := time.Now().Add(lateTime); time.Now().Before(end); time.Sleep(time.Second) {
		code = codeDone
		if engine.Discard(ctx, session) != nil {
			code = codeEnvironment
		}
	}
	return code
}

// guard is a running janitor. A nil one is none.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startJanitor starts the janitor of an environment in a new process session, so that a signal to
// the group of this program does not reach it. Where that is impossible the result is nil, and "env
// gc" removes the container.
func startJanitor(session string) *guard {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	cmd := exec.Command(self, janitorArgument, session)
	cmd.Dir = string(os.PathSeparator)
	for _, v := range os.Environ() { // those that select the daemon, and no secret
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "DOCKER_") || name == "HOME" || name == "PATH" ||
			name == "SSH_AUTH_SOCK" || name == "USERPROFILE" || name == "SystemRoot" {
			cmd.Env = append(cmd.Env, v)
		}
	}
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

// dismiss ends the janitor, which has nothing to do.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_, _ = io.WriteString(g.in, dismissal) // a janitor that has ended cannot read it, nor needs it
	_ = g.in.Close()
	_ = g.cmd.Wait()
}
