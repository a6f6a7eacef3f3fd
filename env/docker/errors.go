package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/sandboxagent/sandboxagent/env"
)

// ConfigError means that a value of Config or Address cannot be meant, or goes together badly with another one.
type ConfigError struct {
	// Field is the name of the value, in lower case.
	Field  string
	Reason string
	// Err is the cause; it may be nil. The message is the Reason alone.
	Err error
}

func (e *ConfigError) Error() string { return "docker: " + e.Field + ": " + e.Reason }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// DaemonError means that there is no daemon at an address, or none that answers.
type DaemonError struct {
	// Address is where it was looked for.
	Address string
	Err     error
}

func (e *DaemonError) Error() string {
	hint := "is it running, and is DOCKER_HOST right?"
	switch {
	case errors.Is(e.Err, os.ErrPermission):
		hint = "this user may not use it; that takes membership in the group docker, or a rootless daemon"
	case errors.Is(e.Err, os.ErrNotExist):
		hint = "no daemon listens there; start one, or let DOCKER_HOST name another"
	case isSSH(e.Address):
		hint = e.sshHint()
	}
	// What the program ssh says has several lines, with ends as a terminal wants them.
	lines := strings.FieldsFunc(fmt.Sprint(e.Err), func(r rune) bool { return r == '\n' || r == '\r' })
	cause := strings.TrimSpace(strings.Join(lines, "; "))
	return fmt.Sprintf("docker: no answer from the daemon at %s: %s (%s)", e.Address, cause, hint)
}

// sshHint says what to do where the way to the daemon is ssh.
func (e *DaemonError) sshHint() string {
	said := fmt.Sprint(e.Err)
	switch {
	case strings.Contains(said, "Host key verification failed"):
		return "ssh does not know the host's key: connect by hand once, and compare it, so that it gets into known_hosts"
	case strings.Contains(said, "Permission denied"):
		return "the host takes none of ssh's keys: ssh-add or IdentityFile gives it one; nobody is asked for a password"
	case strings.Contains(said, `"ssh": executable file not found`):
		return "the program ssh is needed here"
	case strings.Contains(said, "exit status 127"):
		return "the program docker is needed on that host, where ssh finds it"
	}
	return "does \"ssh HOST docker version\" work without a question, and is DOCKER_HOST right?"
}

// Unwrap returns the cause.
func (e *DaemonError) Unwrap() error { return e.Err }

// ImageProblem is what is wrong with an image.
type ImageProblem string

// What can be wrong with an image.
const (
	ImageMissing      ImageProblem = "missing"       // there is none of this name
	ImageDenied       ImageProblem = "denied"        // the registry wants other credentials, or any
	ImageRateLimit    ImageProblem = "rate limit"    // the registry wants fewer requests
	ImageUnreachable  ImageProblem = "unreachable"   // the registry did not answer
	ImagePlatform     ImageProblem = "platform"      // it is for another operating system or processor
	ImageBadReference ImageProblem = "bad reference" // the name is no name of an image
)

// ImageError means that an image cannot be used.
type ImageError struct {
	Reference string
	Problem   ImageProblem
	// Hint says what would help; it may be empty.
	Hint string
	Err  error
}

func (e *ImageError) Error() string {
	text := fmt.Sprintf("docker: image %s: %s", e.Reference, e.Problem)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// StartError means that the daemon could not start a container.
type StartError struct {
	Image string
	Err   error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("docker: start a container of %s: %v", e.Image, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// A Reason is why a container is gone.
type Reason string

// Reasons.
const (
	ReasonOutOfMemory Reason = "out of memory"    // the kernel killed the helper for the container's memory limit
	ReasonRemoved     Reason = "removed"          // somebody removed the container
	ReasonStopped     Reason = "stopped"          // somebody stopped or killed the container
	ReasonDaemon      Reason = "daemon restarted" // the daemon has ended since, and the container with it
	ReasonUnreachable Reason = "daemon gone"      // the daemon does not answer any more
	ReasonEnded       Reason = "ended"            // the helper ended by itself
)

// GoneError means that the container of an environment is not there any more. It wraps env.ErrGone.
type GoneError struct {
	// Container is the name of the container.
	Container string
	Reason    Reason
	// Detail is what the daemon tells besides; it may be empty.
	Detail string
}

func (e *GoneError) Error() string {
	text := fmt.Sprintf("docker: the container %s is gone: %s", e.Container, e.Reason)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// Unwrap returns env.ErrGone.
func (e *GoneError) Unwrap() error { return env.ErrGone }

// explain gives an error of the daemon's API the meaning that callers branch on.
func (e *Engine) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.Canceled):
		return err
	case isUnreachable(err):
		return &DaemonError{Address: e.address, Err: e.cause(err)}
	case strings.Contains(err.Error(), "no space left on device"), strings.Contains(err.Error(), "disk quota exceeded"):
		return fmt.Errorf("%w on the daemon's disk: %w", env.ErrNoSpace, err)
	}
	return err
}

// isUnreachable reports whether a call did not reach the daemon, or got no answer.
func isUnreachable(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err) && errors.As(err, &op) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &op) && op.Op == "dial"
}

// cause returns why a daemon cannot be reached. The client's error does not always have it.
func (e *Engine) cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	network, address, _ := strings.Cut(e.address, "://")
	if network != "unix" && network != "tcp" {
		return err
	}
	conn, derr := net.DialTimeout(network, address, time.Second)
	if derr != nil {
		return derr
	}
	_ = conn.Close() // it is there again
	return err
}
