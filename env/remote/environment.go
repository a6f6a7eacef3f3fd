package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Config configures Open and Attach.
type Config struct {
	// Backend is the name of the backend in env.Info.
	Backend string
	// Session is the name of the environment; it may be empty.
	Session string

	// Stream is the first stream to the helper, such as stdin and stdout of its process. Its Close
	// must end Read and Write. Open and Attach close it when they fail. It may be nil.
	Stream io.ReadWriteCloser
	// Dial returns another stream to the helper, when Stream is nil or was lost. Calls do
	// not overlap. An error that wraps env.ErrGone ends the environment. With nil, a lost stream does.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Token is the secret of the environment, which Ticket has; by default Open makes one. A caller
	// that opens again, after a stream that broke early, needs the same.
	Token string
	// TTL bounds the attempts to connect again. It is the one that the helper was started with.
	TTL time.Duration
	// Args are the arguments of the helper's program, for Ticket.
	Args []string

	// Dir is the working directory.
	Dir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// Inherit selects the variables of the helper's process that commands see; empty means none.
	Inherit vars.Mode

	// Isolation returns the guarantee of isolation for env.Info, given that of the helper, which
	// sees only its own sandbox and may report none. A result without a Strength means none. With
	// nil the helper's is reported.
	Isolation func(helper env.Guarantee) env.Guarantee
	// Close, if set, is called by the first Environment.Close and returns its error. It calls
	// closeHelper, which takes half a minute at most, and releases the resources of the backend.
	Close func(closeHelper func() error) error
	// Left, if set, is called by Environment.Leave after the client has disconnected.
	Left func()
}

// Ticket identifies a running environment for Attach. It is a secret: its holder has all rights of
// the owner in the environment. Its fields are for encoding; their meaning may change. Backends
// embed it beside the data that they need to find their sandbox.
type Ticket struct {
	Session string        `json:"session"`
	Token   string        `json:"token"`
	TTL     time.Duration `json:"ttl"`
	Args    []string      `json:"args,omitempty"`
}

// Environment is an environment that a helper serves. Open and Attach return it.
//
// Its methods are those of Served and a few for reattaching.
type Environment struct {
	Served
	client  *client.Client
	cfg     Config
	info    env.Info
	token   string
	closing sync.Once
}

// Served are the methods of an environment that a helper serves. Walk, Glob, Grep and ReadFiles are
// for the functions of packages search and env, which work with any environment.
type Served interface {
	env.Environment
	search.Searcher
	env.MultiReader
	// Kill kills everything that the environment started, with SIGKILL, and returns when that is dead.
	// It is for a program that has to end at once; Close remains to be called.
	Kill() error
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

// Open configures the helper at the other end of a stream, and returns the environment that it
// serves. The end of ctx ends the connecting only.
func Open(ctx context.Context, cfg Config) (*Environment, error) {
	start, err := json.Marshal(helper.Start{Dir: cfg.Dir, Vars: cfg.Vars, Inherit: cfg.Inherit})
	if err != nil {
		return nil, errors.Join(err, closeStream(cfg.Stream))
	}
	return open(ctx, cfg, cmp.Or(cfg.Token, rand.Text()), start)
}

// Attach connects to a running environment, which may have other clients. The session, the token,
// the TTL and Args are those of the ticket; the fields of cfg that configure the helper have no
// effect. If the environment has ended, the error wraps env.ErrGone.
func Attach(ctx context.Context, cfg Config, t Ticket) (*Environment, error) {
	cfg.Session, cfg.TTL, cfg.Args = t.Session, t.TTL, t.Args
	e, err := open(ctx, cfg, t.Token, nil)
	switch {
	case err == nil:
		return e, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("attach to %s: %w", t.Session, err)
}

// Valid reports whether the ticket may be one of Environment.Ticket.
func (t Ticket) Valid() bool { return IsSession(t.Session) && t.Token != "" && t.TTL > 0 }

func open(
	ctx context.Context, cfg Config, token string, start json.RawMessage,
) (*Environment, error) {
	first := cfg.Stream
	c, err := client.Open(ctx, client.Config{
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			s := first
			if first = nil; s != nil {
				return s, nil
			}
			if cfg.Dial == nil {
				return nil, fmt.Errorf("%w: the stream to its helper has ended", env.ErrGone)
			}
			return cfg.Dial(ctx)
		},
		Token: token, Start: start, Redial: cfg.TTL,
	})
	if err != nil {
		return nil, errors.Join(err, closeStream(first)) // the client closes streams that it got
	}
	return &Environment{
		Served: c, client: c, cfg: cfg, info: cfg.describe(c.Info()), token: token,
	}, nil
}

func closeStream(s io.Closer) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// describe returns the description of the environment, given that of the helper.
func (c Config) describe(info env.Info) env.Info {
	info.Backend = c.Backend
	if c.Isolation == nil {
		return info
	}
	var isolation env.Guarantee
	var others []env.Guarantee
	for _, g := range info.Guarantees {
		if g.Name == env.Isolation {
			isolation = g
		} else {
			others = append(others, g)
		}
	}
	if isolation = c.Isolation(isolation); isolation.Strength != "" {
		isolation.Name = env.Isolation
		others = append(others, isolation)
	}
	info.Guarantees = others
	return info
}

// Info implements env.Environment.
func (e *Environment) Info() env.Info { return e.info.Clone() }

// Session returns the name of the environment.
func (e *Environment) Session() string { return e.cfg.Session }

// Ticket returns the ticket of the environment.
func (e *Environment) Ticket() Ticket {
	return Ticket{Session: e.cfg.Session, Token: e.token, TTL: e.cfg.TTL, Args: e.cfg.Args}
}

// Leave disconnects from the environment, which ends when it has had no client for its TTL. Calls
// in progress end as if the connection was lost. Close has no effect afterwards.
func (e *Environment) Leave() error {
	e.closing.Do(func() {
		e.client.Leave()
		if e.cfg.Left != nil {
			e.cfg.Left()
		}
	})
	return nil
}

// Close implements env.Environment. It ends the environment for all of its clients.
func (e *Environment) Close() (err error) {
	e.closing.Do(func() {
		if e.cfg.Close == nil {
			err = e.client.Close()
			return
		}
		err = e.cfg.Close(e.client.Close)
	})
	return err
}
