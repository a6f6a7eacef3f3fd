// Package portable is an environment over persistent processes of /bin/sh, for places where no helper may run. It needs a
// Linux system with the usual tools in the place and a way to start a shell there, and nothing else.
//
// Shells live on: an operation is a script on the standard input of one of them, so that nothing is started through the
// backend for it. What a shell says stands in the middle of what programs print; it is told from that by a random word of
// 128 bits, new for each operation, that nothing but the shell is told.
//
// A command runs in a child of a shell, with two named pipes of its own as its output, each read by a cat that copies to
// the shell's output. That the cat ends shows that nobody holds the pipe any more. The pipes and their readers are made
// before a command comes, which is why it costs little more than its start.
//
// Standard input of unknown length comes in parts, each behind its length, which the shell copies to a third named pipe.
// Its end is a word and not the end of the shell's own input: a connection that is closed may lose what is on its way, and
// a part of the input must not look like all of it. For the same reason, a shell that has done its work does not end
// before the contact does. Contact with a shell that is lost is not taken up again.
//
// # When the client is gone
//
// A shell whose input has ended ends, but what it has started does not. In a place that ends with its client, such as a
// container, that does not matter. In others, the keeper, one more shell, kills what is left; see Config.TTL. It waits for what
// the client says every few seconds, and a child of it sleeps and counts. A tick starts no process.
//
// # Testing
//
// The suite of package envtest runs with dash, bash and the shell of busybox. [Known] are the cases that differ.
package portable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// defaultShells is how many shells there are at most unless Config says otherwise, and minShells how many there have
	// to be: one for what takes long, one for what is short, and the warden.
	defaultShells, minShells = 8, 3
	// markerPrefix begins the names of the variables by which processes are found.
	markerPrefix = "SANDBOXAGENT_SH_"
	// closeTime bounds how long Close waits for calls to notice it. One that waits for its caller's writer does not.
	closeTime = 5 * time.Second
	// watchTime is how often shells that have something to do are looked after.
	watchTime = time.Second
)

var errWarden = errors.New("looking after processes")

// Config says how to reach a place and what is promised there.
type Config struct {
	// Start starts one more /bin/sh in the place, all with the same variables and in the same folder. It is called at any
	// time, also several times at once.
	Start func(ctx context.Context) (Shell, error)
	// Dir is the working directory; a relative one is below the folder that shells start in, and empty means that.
	Dir string
	// Vars are base variables, as "NAME=value", in addition to those that shells start with.
	Vars []string
	// Backend is what Info calls the environment.
	Backend string
	// MaxShells bounds how many shells there are at a time, and with it how many commands run: two fewer, or three with a
	// TTL. Zero means 8; the least is 3, or 4 with a TTL.
	MaxShells int
	// TTL, if set, is for places that do not end with their client: one more shell, the keeper, kills all that the
	// environment has started there and removes its folder when the client is gone, which is at once when the contact ends,
	// and when nothing has come from the client for TTL if it seems to last. It is rounded up to seconds, and may take a
	// quarter more, but no more than 15 seconds.
	TTL time.Duration
	// Guarantees are those that the backend gives, such as Isolation. They replace those of this package, which are
	// KillTree, CleanClose and AtomicWrite.
	Guarantees []env.Guarantee
	// Files, if set, is another way for the content of large files, more than 4 MiB. What it cannot do shells do.
	Files Files
	// Gone, if set, explains why contact with a shell was lost. It returns an error that wraps env.ErrGone if the place is
	// not there any more, and otherwise err or a better one.
	Gone func(ctx context.Context, err error) error
}

func (c Config) validate() error {
	if c.Start == nil {
		return fmt.Errorf("no way to start a shell: %w", fs.ErrInvalid)
	}
	if strings.ContainsRune(c.Dir, 0) {
		return fmt.Errorf("working directory %q: %w", c.Dir, fs.ErrInvalid)
	}
	if c.TTL < 0 {
		return fmt.Errorf("a negative time to live: %w", fs.ErrInvalid)
	}
	if least := minShells + c.keepers(); c.MaxShells != 0 && c.MaxShells < least {
		return fmt.Errorf("%d shells are too few, want %d: %w", c.MaxShells, least, fs.ErrInvalid)
	}
	return checkVars(c.Vars)
}

// keepers returns how many shells there are that end what an environment has left.
func (c Config) keepers() int {
	if c.TTL > 0 {
		return 1
	}
	return 0
}

// Environment implements env.Environment, env.MultiReader and env.TreeReader. It has none of the other optional interfaces:
// what env does instead is the same.
//
// It differs from others in what a shell can do. A command that dies of SIGPIPE or SIGINT looks like one that exits with
// 141 or 130. A text without interpreter line is run by sh. Terminals are errors.ErrUnsupported. Commands see what shells
// change in their variables, such as OLDPWD. A command with a Stdin of unknown length, and a CopyIn, take a shell that ends
// with them. CopyIn and CopyOut refuse names that pass through a link below their folder, also one that stays inside.
type Environment struct {
	cfg    Config
	info   env.Info
	facts  facts
	pool   *pool
	warden *warden
	keeper *keeper // nil without a TTL
	id     string
	serial atomic.Uint64
	// conditional is held for writing by writes with a condition on the content, for reading by the others.
	conditional sync.RWMutex

	checking chan struct{} // held while Config.Files is tried, and for the two that follow
	checked  bool
	direct   bool // Config.Files can be used

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // calls in progress
	done   chan struct{}  // closed when Close begins
	gone   chan struct{}  // closed when Close has ended
}

var (
	_ env.Environment = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
	_ env.TreeReader  = (*Environment)(nil)
)

// New starts the first shell and learns from it what the place is. It fails with an error that wraps errors.ErrUnsupported
// if the place lacks what this package needs. ctx is for New alone.
func New(ctx context.Context, cfg Config) (*Environment, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("portable: %w", err)
	}
	e := &Environment{
		cfg: cfg, id: newMark()[:16], pool: newPool(cmp.Or(cfg.MaxShells, defaultShells) - cfg.keepers()),
		checking: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
	e.warden = &warden{pool: e.pool}
	e.pool.start = e.startShell
	if err := e.learn(ctx); err != nil {
		e.pool.close()
		return nil, fmt.Errorf("portable: %w", err)
	}
	if cfg.TTL > 0 {
		k := newKeeper(e)
		done, err := k.start(ctx)
		if err != nil {
			return nil, fmt.Errorf("portable: %w", errors.Join(err, e.Close()))
		}
		e.keeper, e.pool.opened = k, k.tell
		go k.run(done)
	}
	go e.watch()
	return e, nil
}

// startShell starts a shell whose pipes are in dir.
func (e *Environment) startShell(ctx context.Context, dir string) (*shell, error) {
	raw, err := e.cfg.Start(ctx)
	if err != nil {
		return nil, e.lost(ctx, fmt.Errorf("start a shell: %w", err))
	}
	s, err := newShell(ctx, raw, dir, "export "+e.shellMarker()+quote("="+path.Base(dir)+".")+"\n"+e.facts.prologue())
	if err != nil {
		return nil, e.lost(ctx, fmt.Errorf("start a shell: %w", err))
	}
	return s, nil
}

// lost explains the loss of a shell, or that there is none. If ctx has ended, that is why.
func (e *Environment) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cut(ctx, err)
	}
	if e.isClosed() || e.cfg.Gone == nil || errors.Is(err, env.ErrProtocol) {
		return err
	}
	why := e.cfg.Gone(ctx, err)
	if ctx.Err() != nil {
		return cut(ctx, err)
	}
	return cmp.Or(why, err)
}

// Info implements env.Environment.
func (e *Environment) Info() env.Info {
	info := e.info
	info.Shell = append([]string(nil), info.Shell...)
	info.Guarantees = append([]env.Guarantee(nil), info.Guarantees...)
	return info
}

// guarantees returns what is promised, those of the backend first.
func (e *Environment) guarantees() []env.Guarantee {
	list := append([]env.Guarantee(nil), e.cfg.Guarantees...)
	const found = "signals from a shell in the place, which finds processes by descent and by a variable in /proc; " +
		"broken by a process that clears its variables and leaves its parent, or changes its user"
	keeps := env.Absent
	if e.cfg.TTL > 0 {
		keeps = env.BestEffort
	}
	for _, g := range []env.Guarantee{
		{Promise: env.KillTree, Strength: env.BestEffort, By: found},
		{Promise: env.CleanClose, Strength: env.BestEffort, By: found},
		{Promise: env.CleanCrash, Strength: keeps, By: "a shell in the place that does the same when its input ends or the client is silent" +
			"; broken by what kills that shell"},
		{Promise: env.AtomicWrite, Strength: env.BestEffort, By: "rename in the folder of the file; in place where that is impossible"},
	} {
		if g.Strength != env.Absent && (env.Info{Guarantees: list}).Strength(g.Promise) == env.Absent {
			list = append(list, g)
		}
	}
	return list
}

// begin registers a call in progress, whose end is e.work.Done.
func (e *Environment) begin(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	e.work.Add(1)
	return nil
}

func (e *Environment) isClosed() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// while returns a context that also ends, with fs.ErrClosed as its cause, when Close begins.
func (e *Environment) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-e.done:
			cancel(fs.ErrClosed)
		case <-stop:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stop)
		cancel(nil)
	})
}

// ask runs a short operation in a shell. The call is registered already.
func (e *Environment) ask(ctx context.Context, o operation) (code int, text string, err error) {
	s, err := e.pool.take(ctx, e.done, false)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := e.while(ctx)
	defer cancel()
	code, text, err = s.run(ctx, o)
	if err != nil {
		e.bury(s, nil, false)
		err = e.lost(ctx, err)
	}
	e.pool.give(s, false, err == nil && (code == codeOK || o.input == nil))
	return code, text, err
}

// bury kills a shell that contact with is lost, and before it the command of it, if there is one; late says that this may not have
// begun.
func (e *Environment) bury(s *shell, command *target, late bool) {
	s.abandon()
	if e.begin(context.Background()) != nil {
		return // Close kills all
	}
	go func() {
		defer e.work.Done()
		// All of this is as far as it is possible. The command goes first: it would take the death of what carries its
		// standard input for the end of that.
		if command != nil && e.killFirst(command, late) != nil {
			return // Close kills all
		}
		_ = e.kill(&target{root: s.pid, word: e.shellMarker() + "=" + path.Base(s.dir) + "."})
	}()
}

// watch ends the contact with shells that are dead, which they never are before their last words have arrived unless
// somebody has killed them. Their streams do not show it, because what they have started holds these open.
func (e *Environment) watch() {
	ticker := time.NewTicker(watchTime)
	defer ticker.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-ticker.C:
		}
		busy := e.pool.atWork()
		if len(busy) == 0 {
			continue
		}
		body := "sa_dead"
		for pid := range busy {
			body += " " + strconv.Itoa(pid)
		}
		out := collect{max: maxFacts}
		if err := e.warden.inTime(operation{body: body, out: out.add}); err != nil {
			continue // which calls will notice themselves
		}
		for word := range strings.FieldsSeq(string(out.data)) {
			if pid, err := strconv.Atoi(word); err == nil && busy[pid] != nil {
				busy[pid].abandon()
			}
		}
	}
}

// Close implements env.Environment.
func (e *Environment) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		<-e.gone
		return nil
	}
	e.closed = true
	close(e.done)
	e.mu.Unlock()
	defer close(e.gone)

	idle := make(chan struct{})
	go func() {
		e.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTime):
	}
	err := e.sweep()
	switch {
	case e.keeper == nil:
	case err == nil:
		e.keeper.dismiss()
	default:
		e.keeper.leave()
	}
	if errors.Is(err, env.ErrGone) {
		err = nil // and with it all that was to be released
	}
	e.pool.close()
	return err
}

// sweep kills all that the environment has started and removes the folder of its pipes.
func (e *Environment) sweep() error {
	e.pool.dismiss(e.warden.pid())
	if err := e.kill(&target{word: e.id}); err != nil {
		return fmt.Errorf("portable: close: %w", err)
	}
	if err := e.warden.inTime(operation{body: "rm -rf -- " + quote(e.pool.base)}); err != nil {
		return fmt.Errorf("portable: close: %w", err)
	}
	return nil
}

// Kill kills every process that commands have started, without any grace, and keeps the environment.
func (e *Environment) Kill() error {
	if err := e.begin(context.Background()); err != nil {
		return nil // Close has done it
	}
	defer e.work.Done()
	if err := e.kill(&target{word: markerPrefix + e.id + "_"}); err != nil {
		return fmt.Errorf("portable: kill: %w", err)
	}
	return nil
}

// shellMarker is the name of the variable that shells export, so that what they start themselves is found.
func (e *Environment) shellMarker() string { return markerPrefix + "OWN_" + e.id }

// nextMarker returns the name of the variable of one more command.
func (e *Environment) nextMarker() string {
	return markerPrefix + e.id + "_" + strconv.FormatUint(e.serial.Add(1), 10)
}
