//go:build unix

package sandboxd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/server"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

const (
	// minToken is the least length of a token in bytes.
	minToken = 16
	// stopTime bounds the end: processes that survive it cannot be killed.
	stopTime = 15 * time.Second
)

// helperServer is the helper while it serves.
type helperServer struct {
	socket string // empty if only the standard streams are served
	lease  *lease
	wire   *server.Server
	// unprotected is why a hostile command could harm this process, or nil.
	unprotected error
	setup

	mu           sync.Mutex
	token        [sha256.Size]byte
	hasToken     bool
	env          *local.Environment // nil until a client has opened it
	socketServer *socketServer      // nil until then, and without a socket
}

// setup is the state in which this process starts to serve.
type setup struct {
	// plan is the plan of the sandbox that it has entered, or nil.
	plan *sandbox.Plan
	// listener is the socket, if the helper outside has created it.
	listener *net.UnixListener
	// parentDone, if set, is closed when the helper outside has ended.
	parentDone <-chan struct{}
	// noSandbox, if set, is why the requested sandbox is missing. refusal, if set, is why no
	// environment is opened.
	noSandbox string
	refusal   error
}

func newHelperServer(socket string, ttl time.Duration, in setup) *helperServer {
	prespawn(threads)
	d := &helperServer{
		socket:      socket,
		lease:       newLease(ttl, systemClock{time.Now()}),
		unprotected: fortify(),
		setup:       in,
	}
	d.wire = server.New(server.Config{
		Open:        d.open,
		Authorize:   d.authorize,
		Connected:   d.lease.set,
		MaxBlocking: maxBlocking,
	})
	return d
}

// run serves the standard streams and the socket until the end and returns the exit code.
func (d *helperServer) run(stdio *duplex) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- d.wire.Serve(ctx, stdio) }()
	// Requests may block after the end of their connection.
	return d.serve(ctx, stdio.ended, served)
}

// runSocket serves the socket until the end and returns the exit code. Its first client must be a
// process of the same pid namespace as this one.
func (d *helperServer) runSocket() (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := bind(d.socket)
	if err != nil {
		return 0, fmt.Errorf("socket %s: %w", d.socket, err)
	}
	d.mu.Lock() // its first client may be fast
	d.socketServer = newSocketServer(l, d.wire, true)
	d.mu.Unlock()
	d.lease.first = max(d.lease.ttl, defaultTTL)
	ended := make(chan struct{})
	close(ended)
	return d.serve(ctx, ended, nil), nil
}

// serve waits for the end, and ends the environment. first is closed when the client of the
// standard streams is gone, and served has the error of that.
func (d *helperServer) serve(
	ctx context.Context, first <-chan struct{}, served <-chan error,
) int {
	signals, stopSignals := notify()
	defer stopSignals()
	if os.Getpid() == 1 {
		// Commands may send signals to PID 1, so none of them ends it. A kubelet sends one before it
		// kills all processes: a command that ended by it would have a result that is not its own.
		if served != nil {
			go d.forward(ctx, signals)
		}
		signals = nil
	}
	var expired chan struct{}
	for {
		select {
		case <-first:
			if d.sockets() == nil {
				return d.end(d.firstEnded(served))
			}
			// Other clients may connect by the socket.
			first, expired = nil, make(chan struct{})
			go func() {
				if d.lease.wait(ctx) {
					close(expired)
				}
			}()
		case <-expired:
			return d.end(exitOK)
		case <-d.wire.Done():
			return d.end(exitOK)
		case <-d.parentDone:
			return d.end(exitError)
		case s := <-signals:
			code := signalCode(s)
			go exitOnNext(signals, code)
			return d.end(code)
		}
	}
}

// firstEnded returns the exit code for the end of the only client.
func (d *helperServer) firstEnded(served <-chan error) int {
	if d.opened() == nil {
		if err := <-served; err != nil {
			return fail(err)
		}
	}
	return exitOK
}

// exitOnNext ends the process at once on another signal.
func exitOnNext(signals <-chan os.Signal, code int) {
	<-signals
	os.Exit(code)
}

// forward passes signals for the environment as a whole on to the commands.
func (d *helperServer) forward(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if e := d.opened(); e != nil && isForwarded(s) {
				_ = e.Signal(s) // an ended process needs none
			}
		}
	}
}

// end kills all processes of the environment, closes it and returns code. It takes at most
// stopTime.
func (d *helperServer) end(code int) int {
	watchdog := time.AfterFunc(stopTime, func() { os.Exit(code) })
	defer watchdog.Stop()
	d.mu.Lock()
	e, sockets := d.env, d.socketServer
	d.mu.Unlock()
	if sockets != nil {
		sockets.close()
	}
	var killed error
	if e != nil {
		killed = e.Kill()
	}
	// Processes that were being started are found now.
	if err := errors.Join(killed, d.wire.Close()); err != nil && !errors.Is(err, fs.ErrClosed) {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
	}
	return code
}

// open opens the environment, and the socket if one is configured.
func (d *helperServer) open(_ context.Context, raw json.RawMessage) (env.Environment, error) {
	var start helper.Start
	if err := json.Unmarshal(raw, &start); err != nil {
		return nil, fmt.Errorf("decode the start: %w", err)
	}
	if d.refusal != nil {
		return nil, d.refusal
	}
	if c := d.plan; c != nil { // without symlinks, whose targets may be hidden
		start.Dir, start.Vars = c.Dir, append(c.Vars(), start.Vars...)
	}
	e, err := local.Exclusive(local.Config{
		Dir:     start.Dir,
		Vars:    start.Vars,
		Inherit: &vars.Filter{Mode: start.Inherit},
	})
	if err != nil {
		return nil, err
	}
	sockets := d.sockets()
	if d.socket != "" && sockets == nil {
		if d.listener != nil {
			sockets = newSocketServer(d.listener, d.wire, false)
		} else if sockets, err = listen(d.socket, d.wire); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	d.mu.Lock()
	d.env, d.socketServer = e, sockets
	d.mu.Unlock()
	return &served{Environment: e, info: d.describe(e.Info()), memory: openMemoryCount()}, nil
}

func (d *helperServer) opened() *local.Environment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.env
}

// sockets returns the server of the socket; nil without one.
func (d *helperServer) sockets() *socketServer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.socketServer
}

// authorize checks a Hello. The first one sets the token. It comes by the standard streams, before
// the socket exists, or without them from a process of the same pid namespace.
func (d *helperServer) authorize(h wire.Hello) error {
	if d.socket == "" {
		return nil
	}
	got := sha256.Sum256([]byte(h.Token))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hasToken {
		if len(h.Token) < minToken {
			return fmt.Errorf("a token of at least %d bytes is needed: %w", minToken, fs.ErrInvalid)
		}
		d.token, d.hasToken = got, true
		return nil
	}
	if subtle.ConstantTimeCompare(got[:], d.token[:]) != 1 {
		return fs.ErrPermission
	}
	return nil
}

// served is the environment with the Info of this process. It forwards all optional methods.
type served struct {
	*local.Environment
	info   env.Info
	memory *memoryCount
}

// Exec implements env.Environment.
func (s *served) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	before, ok := s.memory.kills()
	res, err := s.Environment.Exec(ctx, cmd)
	if ok && err == nil && !res.TimedOut && res.ExitCode == 128+int(syscall.SIGKILL) {
		after, _ := s.memory.kills()
		res.OutOfMemory = after > before
	}
	return res, err
}

// Info implements env.Environment.
func (s *served) Info() env.Info { return s.info.Clone() }

// describe weakens the guarantees that this process cannot give, and adds those of the sandbox.
func (d *helperServer) describe(info env.Info) env.Info {
	if d.unprotected != nil {
		for i, g := range info.Guarantees {
			// Landlock keeps confined commands from this process itself.
			if g.Strength == env.Enforced && g.Name != env.ConfinedCommands {
				info.Guarantees[i].Strength = env.BestEffort
				info.Guarantees[i].By = g.By + "; a hostile command could end it: " + d.unprotected.Error()
			}
		}
	}
	if d.plan != nil {
		info.Guarantees = slices.DeleteFunc(
			info.Guarantees, func(g env.Guarantee) bool { return g.Name == env.Isolation },
		)
		info.Guarantees = append(info.Guarantees, d.plan.Guarantees()...)
	}
	for i, g := range info.Guarantees {
		switch {
		case g.Name != env.Isolation:
		case d.noSandbox != "":
			info.Guarantees[i].By += "; no sandbox: " + d.noSandbox
		case d.plan != nil && d.plan.WhyWeaker != "":
			info.Guarantees[i].By += "; it is not " + d.plan.WhyWeaker
		}
	}
	return info
}
