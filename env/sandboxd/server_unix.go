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
	// minToken is the least length of a token that opens a socket.
	minToken = 16
	// stopTime bounds the end: what is not dead by then does not die.
	stopTime = 15 * time.Second
)

// daemon is the helper while it serves.
type daemon struct {
	socket string // empty if only the standard streams are served
	lease  *lease
	server *server.Server
	// unprotected is why a hostile command could harm this process; nil if it could not.
	unprotected error
	surroundings

	mu    sync.Mutex
	token [sha256.Size]byte
	keyed bool               // there is a token
	place *local.Environment // nil until a client has opened it
	door  *door              // nil until then, and without a socket
}

// surroundings are what this process finds itself in.
type surroundings struct {
	// confinement is what it has entered; nil if nothing.
	confinement *sandbox.Plan
	// listener is the socket, if somebody outside has made it.
	listener *net.UnixListener
	// alone, if set, is closed when the process outside that has put up the confinement has ended.
	alone <-chan struct{}
	// bare, if set, is why there is no sandbox where there should be one, and refusal, if set, why nothing is opened.
	bare    string
	refusal error
}

func newDaemon(socket string, ttl time.Duration, in surroundings) *daemon {
	prespawn(threads)
	d := &daemon{socket: socket, lease: newLease(ttl, systemClock{time.Now()}), unprotected: fortify(), surroundings: in}
	d.server = server.New(server.Config{
		Open:        d.open,
		Authorize:   d.authorize,
		Connected:   d.lease.set,
		MaxBlocking: maxBlocking,
	})
	return d
}

// run serves until the end and returns the exit code.
func (d *daemon) run(stdio *duplex) int {
	signals, stopSignals := notify()
	defer stopSignals()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(ctx, stdio) }()
	// Requests may hang behind the end of their connection.
	first := stdio.ended
	if os.Getpid() == 1 {
		// Commands may send signals here, so that none of them is a reason to end.
		go d.forward(ctx, signals)
		signals = nil
	}
	var expired chan struct{}
	for {
		select {
		case <-first:
			if !d.hasDoor() {
				return d.end(d.firstEnded(served))
			}
			// Others may come to the door.
			first, expired = nil, make(chan struct{})
			go func() {
				if d.lease.wait(ctx) {
					close(expired)
				}
			}()
		case <-expired:
			return d.end(exitOK)
		case <-d.server.Done():
			return d.end(exitOK)
		case <-d.alone:
			return d.end(exitError)
		case s := <-signals:
			code := exitError
			if number, ok := s.(syscall.Signal); ok {
				code = 128 + int(number)
			}
			go exitOnNext(signals, code)
			return d.end(code)
		}
	}
}

// firstEnded returns the exit code for the end of the only client.
func (d *daemon) firstEnded(served <-chan error) int {
	if d.opened() == nil {
		if err := <-served; err != nil {
			return fail(err)
		}
	}
	return exitOK
}

// exitOnNext ends the process at once when another signal comes: whoever sends two does not want to wait.
func exitOnNext(signals <-chan os.Signal, code int) {
	<-signals
	os.Exit(code)
}

// forward passes signals that are meant for the place as a whole on to the commands.
func (d *daemon) forward(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if place := d.opened(); place != nil && isForwarded(s) {
				_ = place.Signal(s) // who is gone by now needs none
			}
		}
	}
}

// end kills everything, closes everything, and returns code. It takes a bounded time.
func (d *daemon) end(code int) int {
	watchdog := time.AfterFunc(stopTime, func() { os.Exit(code) })
	defer watchdog.Stop()
	d.mu.Lock()
	place, door := d.place, d.door
	d.mu.Unlock()
	if door != nil {
		door.close()
	}
	var killed error
	if place != nil {
		killed = place.Kill()
	}
	// What was just being started is found now.
	if err := errors.Join(killed, d.server.Close()); err != nil && !errors.Is(err, fs.ErrClosed) {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
	}
	return code
}

// open opens the environment, and the socket if there is to be one.
func (d *daemon) open(_ context.Context, raw json.RawMessage) (env.Environment, error) {
	var start helper.Start
	if err := json.Unmarshal(raw, &start); err != nil {
		return nil, fmt.Errorf("what to open: %w", err)
	}
	if d.refusal != nil {
		return nil, d.refusal
	}
	if c := d.confinement; c != nil { // links may lead to what is not to be seen
		start.Dir, start.Vars = c.Dir, append(c.Vars(), start.Vars...)
	}
	place, err := local.Exclusive(local.Config{
		Dir:     start.Dir,
		Vars:    start.Vars,
		Inherit: &vars.Filter{Mode: start.Inherit},
	})
	if err != nil {
		return nil, err
	}
	var entry *door
	if d.socket != "" {
		if d.listener != nil {
			entry = openDoor(d.listener, d.server)
		} else if entry, err = listen(d.socket, d.server); err != nil {
			return nil, errors.Join(err, place.Close())
		}
	}
	d.mu.Lock()
	d.place, d.door = place, entry
	d.mu.Unlock()
	return &served{Environment: place, info: d.describe(place.Info()), memory: openMemoryCount()}, nil
}

func (d *daemon) opened() *local.Environment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.place
}

func (d *daemon) hasDoor() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.door != nil
}

// authorize decides about a Hello. The first one comes by the standard streams, since the socket opens only after it,
// and sets the token.
func (d *daemon) authorize(h wire.Hello) error {
	if d.socket == "" {
		return nil
	}
	got := sha256.Sum256([]byte(h.Token))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.keyed {
		if len(h.Token) < minToken {
			return fmt.Errorf("a token of at least %d bytes is needed: %w", minToken, fs.ErrInvalid)
		}
		d.token, d.keyed = got, true
		return nil
	}
	if subtle.ConstantTimeCompare(got[:], d.token[:]) != 1 {
		return fs.ErrPermission
	}
	return nil
}

// served is the environment with what this process adds to its description. Whatever else it can do, it can.
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
func (s *served) Info() env.Info {
	info := s.info
	info.Shell = append([]string(nil), info.Shell...)
	info.Guarantees = append([]env.Guarantee(nil), info.Guarantees...)
	return info
}

// describe takes back what needs a protection that there is not, and adds what the confinement enforces.
func (d *daemon) describe(info env.Info) env.Info {
	if d.unprotected != nil {
		for i, g := range info.Guarantees {
			if g.Strength == env.Enforced {
				info.Guarantees[i].Strength = env.BestEffort
				info.Guarantees[i].By = g.By + "; a hostile command could end it: " + d.unprotected.Error()
			}
		}
	}
	if d.confinement != nil {
		info.Guarantees = slices.DeleteFunc(info.Guarantees, func(g env.Guarantee) bool { return g.Promise == env.Isolation })
		info.Guarantees = append(info.Guarantees, d.confinement.Guarantees()...)
	}
	for i, g := range info.Guarantees {
		switch {
		case g.Promise != env.Isolation:
		case d.bare != "":
			info.Guarantees[i].By += "; there is no sandbox: " + d.bare
		case d.confinement != nil && d.confinement.WhyWeaker != "":
			info.Guarantees[i].By += "; it is not " + d.confinement.WhyWeaker
		}
	}
	return info
}
