package portable

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// keeping is what the keeper learns in addition to the library.
//
//go:embed keeper.sh
var keeping string

const (
	// tickMost is the longest time between two signs of life, and stepMost the longest that the keeper sleeps at a time.
	tickMost, stepMost = 10 * time.Second, 15 * time.Second
	// keeperPause is how long a keeper that is lost stays away, at least.
	keeperPause = time.Second
)

// keeper is one more shell in the place. It ends all that the environment has started there when the client is gone.
type keeper struct {
	e     *Environment
	news  chan struct{} // there are more shells; it holds one
	quit  chan struct{} // closed when nothing is left to keep
	ended chan struct{} // closed when there is no keeper any more, and none will come

	mu   sync.Mutex
	s    *shell
	over bool // nobody replaces it
}

func newKeeper(e *Environment) *keeper {
	return &keeper{e: e, news: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
}

// steps returns how long the keeper sleeps at a time, in seconds, and how often until nothing has come for ttl.
func steps(ttl time.Duration) (step, count int) {
	step = int(min(max(ttl/4, time.Second), stepMost) / time.Second)
	// The first sign of life that is missing may have been due at the end of a sleep.
	return step, int((ttl+time.Duration(step)*time.Second-1)/(time.Duration(step)*time.Second)) + 1
}

// start starts a keeper, and returns a channel that says how it ended.
func (k *keeper) start(ctx context.Context) (<-chan error, error) {
	raw, err := k.e.cfg.Start(ctx)
	if err != nil {
		return nil, k.e.lost(ctx, fmt.Errorf("start a shell: %w", err))
	}
	gone, end := make(chan struct{}), raw.Close
	raw.Close = func() error {
		close(gone)
		return end()
	}
	// It has no marker, and so nothing kills it but itself.
	s, err := newShell(ctx, raw, "/nonexistent", k.e.facts.prologue()+strip(keeping))
	if err != nil {
		return nil, k.e.lost(ctx, fmt.Errorf("start a shell: %w", err))
	}
	signs := &signs{keeper: k, gone: gone, up: make(chan struct{})}
	step, count := steps(k.e.cfg.TTL)
	body := fmt.Sprintf("sa_keep %s %s %d %d", quote(k.e.pool.base), quote(k.e.id), step, count)
	k.mu.Lock()
	k.s = s
	if k.over {
		s.abandon()
	}
	k.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		code, text, err := s.run(context.Background(), operation{body: body, input: signs})
		if err == nil && code != codeOK {
			err = fmt.Errorf("%w: the keeper ends with %d: %s", env.ErrProtocol, code, text)
		}
		s.abandon()
		done <- err
	}()
	select {
	case <-signs.up:
		return done, nil
	case err := <-done:
		return nil, k.e.lost(ctx, fmt.Errorf("start the keeper: %w", errors.Join(err, io.ErrUnexpectedEOF)))
	case <-ctx.Done():
		s.abandon()
		return nil, ended(ctx)
	}
}

// run replaces a keeper that is lost, until Close or until the place is gone.
func (k *keeper) run(done <-chan error) {
	defer close(k.ended)
	for {
		err := <-done
		k.mu.Lock()
		over, pid := k.over, k.s.pid
		k.mu.Unlock()
		if err == nil || over {
			return
		}
		// It may live, and take what it sees for the end of the client.
		_ = k.e.kill(&target{root: pid}) // else it is right
		for {
			select {
			case <-k.quit:
				return
			case <-time.After(keeperPause):
			}
			ctx, cancel := context.WithTimeout(context.Background(), noiseTime)
			next, err := k.start(ctx)
			cancel()
			if errors.Is(err, env.ErrGone) {
				return
			}
			if err == nil {
				done = next
				break
			}
		}
	}
}

// tell has the keeper know of new shells soon.
func (k *keeper) tell() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// dismiss ends the keeper, which has nothing to do any more.
func (k *keeper) dismiss() {
	close(k.quit)
	k.wait()
}

// leave leaves everything to the keeper.
func (k *keeper) leave() {
	k.mu.Lock()
	k.over = true
	k.s.abandon()
	k.mu.Unlock()
	close(k.quit)
	k.wait()
}

func (k *keeper) wait() {
	select {
	case <-k.ended:
	case <-time.After(closeTime):
	}
}

// signs are the signs of life of the client, as the input of a keeper.
type signs struct {
	keeper *keeper
	gone   <-chan struct{} // closed when the contact has ended
	up     chan struct{}   // closed when the keeper reads
	begun  sync.Once
	rest   string
	last   bool
}

// Read implements io.Reader.
func (s *signs) Read(p []byte) (int, error) {
	first := false
	s.begun.Do(func() {
		close(s.up)
		first = true
	})
	if s.rest == "" {
		if s.last {
			return 0, io.EOF
		}
		if !first {
			timer := time.NewTimer(min(s.keeper.e.cfg.TTL/6, tickMost))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-s.keeper.news:
			case <-s.keeper.quit:
				s.last = true
			case <-s.gone:
				return 0, io.EOF
			}
		}
		s.rest = s.line()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *signs) line() string {
	if s.last {
		return "q\n"
	}
	var b strings.Builder
	b.WriteByte('t')
	for _, pid := range s.keeper.e.pool.pids() {
		b.WriteString(" " + strconv.Itoa(pid))
	}
	return b.String() + "\n"
}
