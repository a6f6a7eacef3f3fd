package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// stream is stdin and stdout of a process in a pod.
type stream struct {
	*io.PipeReader // its stdout
	in             *io.PipeWriter
	stderr         *helper.StderrTail
	end            context.CancelFunc
	once           sync.Once
	ended          chan struct{} // closed at the end of the process or the connection
	err            error         // valid then
}

// protocols are those of a WebSocket. The older one does not tell a process that its stdin ends
// while its stdout goes on; nothing here needs that.
var protocols = []string{
	remotecommandconsts.StreamProtocolV5Name, remotecommandconsts.StreamProtocolV4Name,
}

// exec starts a process in a container of a pod. Its stream is a WebSocket, or SPDY where the
// server or a proxy lacks that. It returns when the server has accepted it.
func (c *Cluster) exec(
	ctx context.Context, pod, container string, argv []string,
) (*stream, error) {
	accepted := make(chan struct{})
	var once sync.Once
	config := rest.CopyConfig(c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
				c.protocol.CompareAndSwap(nil, strings.ToLower(resp.Header.Get("Upgrade")))
				once.Do(func() { close(accepted) })
			}
			return resp, err
		})
	})
	target := c.pods(http.MethodPost, pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: argv, Stdin: true, Stdout: true, Stderr: true,
	}, parameters).URL()
	socket, err := remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet,
		target.String(), protocols...)
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
	if err != nil {
		return nil, err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return c.protocol.Load() == nil &&
			(httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err))
	})
	if err != nil {
		return nil, err
	}
	if known := c.protocol.Load(); known != nil && known != "websocket" {
		executor = spdy
	}
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	// Its logger would write to stderr.
	life, end := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Logger{}))
	s := &stream{
		PipeReader: outRead, in: inWrite, stderr: &helper.StderrTail{}, end: end,
		ended: make(chan struct{}),
	}
	go func() {
		defer end()
		s.err = executor.StreamWithContext(life, remotecommand.StreamOptions{
			Stdin: inRead, Stdout: outWrite, Stderr: s.stderr,
		})
		close(s.ended)
		_ = inRead.CloseWithError(io.ErrClosedPipe)
		_ = outWrite.Close() // what the reader lacks is lost, as with a cut connection
	}()
	select {
	case <-accepted:
		return s, nil
	case <-s.ended:
		err := endError(s.err)
		var refused *httpstream.UpgradeFailureError // which does not unwrap its cause
		if errors.As(err, &refused) && refused.Cause != nil {
			err = refused.Cause
		}
		return nil, c.explain(err)
	case <-ctx.Done():
		_ = s.Close()
		return nil, context.Cause(ctx)
	}
}

// endError returns an error for a stream that ended before the server accepted it.
func endError(err error) error {
	if err == nil {
		return errors.New("the server closed the stream")
	}
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Write writes to stdin.
func (s *stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close closes the connection.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.end()
		_ = s.PipeReader.Close()
		_ = s.in.Close()
	})
	return nil
}

// exitCode returns the exit code of the process, once the stream has ended. It is false if the
// connection broke before.
func (s *stream) exitCode() (int, bool) {
	var exit utilexec.ExitError
	switch {
	case s.err == nil:
		return 0, true
	case errors.As(s.err, &exit) && exit.Exited():
		return exit.ExitStatus(), true
	}
	return 0, false
}

// exited reports whether the process has ended with an exit code.
func (s *stream) exited(code int) bool {
	select {
	case <-s.ended:
		got, ok := s.exitCode()
		return ok && got == code
	default:
		return false
	}
}

// explained is a stream whose end is an error with the reason, if there is one.
type explained struct{ *stream }

// Read reads stdout.
func (s explained) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	if errors.Is(err, io.EOF) && s.err != nil { // it has ended
		err = s.failure(io.ErrUnexpectedEOF)
	}
	return n, err
}

// errBroken means that the stream of a process ended before the process had done its work.
var errBroken = errors.New("the stream broke")

// failure returns the error of a stream that ended too early.
func (s *stream) failure(err error) error {
	select {
	case <-s.ended:
	default:
		return err
	}
	switch code, ok := s.exitCode(); {
	case !ok: // the API server accepts a stream before it asks the kubelet, so it may not have begun
		err = fmt.Errorf("%w; %w: %w", err, errBroken, s.err)
	case code == 0: // SPDY reports a broken connection like this
		err = fmt.Errorf("%w; %w", err, errBroken)
	case code > 128: // it was killed, together with its container
		err = fmt.Errorf("%w; %w: exit code %d", err, errBroken, code)
	default:
		err = fmt.Errorf("%w; exit code %d", err, code)
	}
	if tail := s.stderr.String(); tail != "" {
		err = fmt.Errorf("%w; stderr: %q", err, tail)
	}
	return err
}
