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
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// ConfigError reports an invalid field of Config or Address, or a conflict between two.
type ConfigError = remote.ConfigError

// OpenError reports a container that did not start.
type OpenError = remote.OpenError

// badConfig returns a *ConfigError.
func badConfig(field, format string, args ...any) error {
	return remote.BadConfig(backend, field, format, args...)
}

// DaemonError reports a daemon that is absent, does not answer or is unfit.
type DaemonError struct {
	// Address is the address of the daemon.
	Address string
	Err     error
}

func (e *DaemonError) Error() string {
	hint := "is it running, and is DOCKER_HOST right?"
	switch {
	case errors.Is(e.Err, os.ErrPermission):
		hint = "this user may not use it: join the group docker, or use a rootless daemon"
	case errors.Is(e.Err, os.ErrNotExist):
		hint = "no daemon listens on it; start one, or let DOCKER_HOST name another"
	case isSSH(e.Address):
		hint = e.sshHint()
	}
	// The program ssh prints several lines with CRLF.
	lines := strings.FieldsFunc(fmt.Sprint(e.Err), func(r rune) bool { return r == '\n' || r == '\r' })
	cause := strings.TrimSpace(strings.Join(lines, "; "))
	return fmt.Sprintf("docker: no answer from the daemon at %s: %s (%s)", e.Address, cause, hint)
}

// sshHint returns the hint for a daemon behind ssh.
func (e *DaemonError) sshHint() string {
	text := fmt.Sprint(e.Err)
	switch {
	case strings.Contains(text, "Host key verification failed"):
		return "the host's key is not in known_hosts: connect by hand once, and compare it"
	case strings.Contains(text, "Permission denied"):
		return "the host accepts none of ssh's keys: add one by ssh-add or IdentityFile; passwords " +
			"are not supported"
	case strings.Contains(text, `"ssh": executable file not found`):
		return "install the program ssh here"
	case strings.Contains(text, "exit status 127"):
		return "install the program docker on that host, in the PATH of ssh"
	}
	return "does \"ssh HOST docker version\" work without a question, and is DOCKER_HOST right?"
}

// Unwrap returns the cause.
func (e *DaemonError) Unwrap() error { return e.Err }

// ImageProblem is the kind of an ImageError.
type ImageProblem string

// Problems of images.
const (
	ImageMissing      ImageProblem = "missing"       // no such image
	ImageDenied       ImageProblem = "denied"        // the registry needs credentials, or other ones
	ImageRateLimit    ImageProblem = "rate limit"    // the registry limits requests
	ImageUnreachable  ImageProblem = "unreachable"   // the registry did not answer
	ImagePlatform     ImageProblem = "platform"      // built for another operating system or processor
	ImageBadReference ImageProblem = "bad reference" // invalid name
)

// ImageError reports an image that cannot be used.
type ImageError struct {
	Reference string
	Problem   ImageProblem
	// Hint names a remedy; it may be empty.
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

// A Reason is the reason for a GoneError.
type Reason string

// Reasons.
const (
	// the kernel killed the helper for the container's memory limit
	ReasonOutOfMemory Reason = "out of memory"
	ReasonRemoved     Reason = "removed"          // removed by a user
	ReasonStopped     Reason = "stopped"          // stopped or killed by a user
	ReasonDaemon      Reason = "daemon restarted" // the container ended with the daemon
	ReasonUnreachable Reason = "daemon gone"      // the daemon does not answer
	ReasonEnded       Reason = "ended"            // the helper exited
)

// GoneError reports that the container of an environment has ended. It wraps env.ErrGone.
type GoneError struct {
	// Container is the name of the container.
	Container string
	Reason    Reason
	// Detail may be empty.
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

// explain returns the cause of a cancelled ctx, or the error that callers branch on.
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
	case strings.Contains(err.Error(), "no space left on device"),
		strings.Contains(err.Error(), "disk quota exceeded"):
		return fmt.Errorf("%w on the daemon's disk: %w", env.ErrNoSpace, err)
	}
	return err
}

// isUnreachable reports whether a call did not reach the daemon.
func isUnreachable(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err) && errors.As(err, &op) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &op) && op.Op == "dial"
}

// cause returns the system error for an unreachable daemon, which the client's error may lack.
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
	_ = conn.Close() // the daemon is back
	return err
}
