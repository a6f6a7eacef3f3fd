package portable

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// pool holds the shells. One more, the warden, is kept for what has to be done while all others are busy: looking at
// processes and killing them.
type pool struct {
	start func(ctx context.Context, dir string) (*shell, error)
	base  string
	// long is taken by what may hold a shell for as long as it likes, slots by everybody, so that something is always
	// left for what is short.
	long, slots chan struct{}

	mu     sync.Mutex
	idle   []*shell
	busy   map[int]*shell // by their process numbers
	all    map[*shell]struct{}
	serial int
	closed bool
	opened func() // is called when there is one more shell
}

func newPool(size int) *pool {
	return &pool{
		opened: func() {},
		long:   make(chan struct{}, size-2), slots: make(chan struct{}, size-1),
		all: make(map[*shell]struct{}), busy: make(map[int]*shell),
	}
}

// take returns a shell for one operation, which give takes back.
func (p *pool) take(ctx context.Context, done <-chan struct{}, long bool) (*shell, error) {
	if long {
		if err := acquire(ctx, done, p.long); err != nil {
			return nil, err
		}
	}
	err := acquire(ctx, done, p.slots)
	var s *shell
	if err == nil {
		if s, err = p.get(ctx); err != nil {
			<-p.slots
		} else {
			p.mu.Lock()
			p.busy[s.pid] = s
			p.mu.Unlock()
		}
	}
	if err != nil && long {
		<-p.long
	}
	return s, err
}

func acquire(ctx context.Context, done <-chan struct{}, slots chan struct{}) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select {
	case <-done:
		return fs.ErrClosed
	default:
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	case <-done:
		return fs.ErrClosed
	}
}

// get returns an idle shell or starts one.
func (p *pool) get(ctx context.Context) (*shell, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return p.open(ctx)
}

// open starts a shell.
func (p *pool) open(ctx context.Context) (*shell, error) {
	p.mu.Lock()
	p.serial++
	dir := p.base + "/" + strconv.Itoa(p.serial)
	p.mu.Unlock()
	s, err := p.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		s.abandon()
		return nil, fs.ErrClosed
	}
	p.all[s] = struct{}{}
	p.opened()
	return s, nil
}

// give takes a shell back. A shell that is not sound is left.
func (p *pool) give(s *shell, long, sound bool) {
	p.mu.Lock()
	delete(p.busy, s.pid)
	if sound && !s.once && !p.closed {
		p.idle = append(p.idle, s)
	} else {
		delete(p.all, s)
		s.abandon()
	}
	p.mu.Unlock()
	<-p.slots
	if long {
		<-p.long
	}
}

// atWork returns the shells that have something to do, by their process numbers.
func (p *pool) atWork() map[int]*shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.busy)
}

// pids returns the process numbers of all shells, in order.
func (p *pool) pids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]int, 0, len(p.all))
	for s := range p.all {
		list = append(list, s.pid)
	}
	slices.Sort(list)
	return list
}

// dismiss tells all shells but the warden to end, which kills what they have started for themselves.
func (p *pool) dismiss(warden int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.all {
		if s.pid != warden {
			_ = s.raw.Stdin.Close() // it is abandoned soon
		}
	}
}

// close ends the contact with all shells.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for s := range p.all {
		_ = s.raw.Stdin.Close() // an idle shell ends by itself
		s.abandon()
	}
	clear(p.all)
	p.idle = nil
}

// warden is the shell that looks after processes.
type warden struct {
	pool *pool
	mu   sync.Mutex
	s    *shell
}

// run runs an operation. If the shell is lost, it is done once more in a new one, unless part of its output may have come.
func (w *warden) run(ctx context.Context, o operation) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var code int
	var err error
	for range 2 {
		if w.s == nil {
			if w.s, err = w.pool.open(ctx); err != nil {
				return 0, err
			}
		}
		code, _, err = w.s.run(ctx, o)
		if err == nil && !w.s.once {
			return code, nil
		}
		w.s.abandon()
		w.s = nil
		if err == nil || o.out != nil {
			break
		}
	}
	return code, err
}

// inTime is run for callers whose context is over. A code is an error.
func (w *warden) inTime(o operation) error {
	ctx, cancel := context.WithTimeout(context.Background(), wardenTime)
	defer cancel()
	code, err := w.run(ctx, o)
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: code %d", env.ErrProtocol, code)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errWarden, err)
	}
	return err
}

// wardenTime bounds one look at the processes.
const wardenTime = 10 * time.Second

// pid returns the process number of the warden; 0 if there is none.
func (w *warden) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.s == nil {
		return 0
	}
	return w.s.pid
}
