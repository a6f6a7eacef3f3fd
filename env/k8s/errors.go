package k8s

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// ConfigError reports an invalid field of Config or Address, or a conflict between two.
type ConfigError = remote.ConfigError

// OpenError reports a pod that did not start, in the words of the cluster.
type OpenError = remote.OpenError

// badConfig returns a *ConfigError.
func badConfig(field, format string, args ...any) error {
	return remote.BadConfig(backend, field, format, args...)
}

// ClusterError reports a cluster that does not answer, fails itself, or rejects the credentials.
type ClusterError struct {
	// Server is the URL of the API server.
	Server string
	// Denied: the server has answered, and does not know the user, or the program that logs in failed.
	Denied bool
	Err    error
}

func (e *ClusterError) Error() string {
	if e.Denied {
		return fmt.Sprintf("k8s: %s rejects the credentials: %v (have they expired? log in again, or "+
			"select another context)", e.Server, e.Err)
	}
	if isFailure(e.Err) {
		return fmt.Sprintf("k8s: the cluster at %s fails: %v (try again later)", e.Server, e.Err)
	}
	return fmt.Sprintf("k8s: no answer from the cluster at %s: %v (is it running, and is it the "+
		"right context of the kubeconfig?)", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *ClusterError) Unwrap() error { return e.Err }

// ErrNoShell is the cause of an OpenError: the image lacks a shell or another program that installs
// the helper.
var ErrNoShell = errors.New("the image has no shell, or lacks chmod, head, mkdir, mv, " +
	"sleep, uname or wc")

// ErrPodField is the cause of a ConfigError: a field of the pod template could weaken the sandbox.
var ErrPodField = errors.New("it could weaken the sandbox")

// A Reason is the reason for a GoneError.
type Reason string

// Reasons.
const (
	ReasonOutOfMemory Reason = "out of memory" // the kernel killed the helper for the pod's limit
	ReasonDeleted     Reason = "deleted"       // by a user or a controller
	ReasonEvicted     Reason = "evicted"       // by the API, such as a drain, or the node
	ReasonPreempted   Reason = "preempted"     // by a pod of a higher priority
	ReasonNode        Reason = "node lost"     // the node has failed or was shut down
	ReasonDeadline    Reason = "deadline"      // Config.Deadline has passed
	ReasonEnded       Reason = "ended"         // the helper exited
)

// GoneError reports that the pod of an environment has ended. It wraps env.ErrGone.
type GoneError struct {
	// Pod is the name of the pod, with its namespace.
	Pod    string
	Reason Reason
	// Detail is in the words of the cluster; it may be empty.
	Detail string
}

func (e *GoneError) Error() string {
	text := fmt.Sprintf("k8s: the pod %s is gone: %s", e.Pod, e.Reason)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// Unwrap returns env.ErrGone.
func (e *GoneError) Unwrap() error { return env.ErrGone }

// explain returns the error that callers branch on.
func (c *Cluster) explain(err error) error {
	var failed *url.Error
	var network net.Error
	var cluster *ClusterError
	switch {
	case errors.As(err, &cluster):
	case apierrors.IsUnauthorized(err):
		return &ClusterError{Server: c.Server(), Denied: true, Err: err}
	case strings.Contains(err.Error(), "getting credentials"): // by a plugin
		return &ClusterError{Server: c.Server(), Denied: true, Err: err}
	case errors.As(err, &failed), errors.As(err, &network), isFailure(err):
		return &ClusterError{Server: c.Server(), Err: err}
	}
	return err
}

// isFailure reports whether the server or a proxy before it failed, or is overloaded.
func isFailure(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	if strings.Contains(answer.Status().Message, "failed calling webhook") { // of an admission
		return false
	}
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// isDenied reports whether the server rejects the credentials, or they cannot be got.
func isDenied(err error) bool {
	var cluster *ClusterError
	return apierrors.IsUnauthorized(err) || errors.As(err, &cluster) && cluster.Denied
}

func isMissing(err error) bool  { return apierrors.IsNotFound(err) }
func isConflict(err error) bool { return apierrors.IsConflict(err) }
