package integration_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/internal/race"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

const (
	soakTurns     = 20
	soakWorkers   = 3
	soakFaultRate = 0.01
	// Memory may grow by a share, and by a constant that is small beside the memory of all sessions.
	soakGrowth    = 0.02
	soakHeapSlack = 512 << 10
	soakRSSSlack  = 8 << 20
)

// TestFault30Soak has many sessions in one process, with random faults, after which nothing of them
// may be left.
func TestFault30Soak(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are those of a Unix shell")
	}
	sessions, warm := 1000, 100
	if testing.Short() || race.Enabled() {
		sessions, warm = 100, 20
		t.Logf("%d sessions in place of 1000: short, or under the race detector", sessions)
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SANDBOXAGENT_TEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("SANDBOXAGENT_TEST_SEED=%d", seed)
	k := newSoak(t, seed)
	k.open(t)
	k.run(t, 0, 2*len(k.wires)) // opens the files and sockets that a process opens once
	empty := k.still(t)
	k.run(t, 2*len(k.wires), warm)
	base := k.levels(t)
	began := time.Now()
	k.run(t, warm, sessions)
	t.Logf("%d sessions took %s; faults: %v", sessions-warm, time.Since(began).Round(time.Millisecond),
		k.counts())
	k.settle(t, empty)
	k.checkMemory(t, base)
	k.checkLeftovers(t)
	k.close(t)
}

// soak is the process with its lanes and faults.
type soak struct {
	seed   uint64
	wires  []wire
	lanes  []*lane // one for each worker and wire
	root   string
	marker string

	mu     sync.Mutex
	faults map[string]int
}

// lane has one session after the other.
type lane struct {
	dir    string
	env    *local.Environment
	agent  *agent.Agent
	client llm.Client // of the session that is on
	play   *soakPlay
}

func (l *lane) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return l.client.Stream(ctx, req)
}

func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	k := &soak{
		seed: seed, wires: wires(), root: t.TempDir(), marker: fmt.Sprintf("9%09d", seed%1_000_000_000),
		faults: map[string]int{},
	}
	for _, name := range []string{"tmp", "work", "sessions"} {
		if err := os.Mkdir(filepath.Join(k.root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(k.root, "tmp"))
	t.Cleanup(func() {
		for _, l := range k.lanes {
			_ = l.close() // a failed test has not done it
		}
	})
	return k
}

// open opens the lanes.
func (k *soak) open(t *testing.T) {
	t.Helper()
	for range soakWorkers {
		for _, w := range k.wires {
			l, err := k.newLane(w)
			if err != nil {
				t.Fatal(err)
			}
			k.lanes = append(k.lanes, l)
		}
	}
}

func (k *soak) newLane(w wire) (*lane, error) {
	dir, err := os.MkdirTemp(filepath.Join(k.root, "work"), "")
	if err != nil {
		return nil, err
	}
	l := &lane{dir: dir}
	if l.env, err = local.New(local.Config{Dir: dir, Vars: []string{"SANDBOXAGENT_SOAK=" +
		k.marker}}); err != nil {
		return nil, err
	}
	l.agent, err = agent.New(agent.Config{
		Client: l, Profile: w.profile, Env: l.env,
		Store: journal.OnDisk(filepath.Join(k.root, "sessions")),
		Log:   slog.New(slog.DiscardHandler), Retry: llm.RetryPolicy{Clock: instant{}, MaxRetries: 10},
		Limits: agent.Limits{NoLoopDetection: true}, Observers: []func(event.Event){func(event.Event) {}},
		Sinks: []func(event.Event) error{func(e event.Event) error { return l.play.see(e) }},
	})
	return l, err
}

func (l *lane) close() error {
	if l.agent == nil {
		return nil
	}
	err := errors.Join(l.agent.Close(), l.env.Close(), os.RemoveAll(l.dir))
	l.agent = nil
	return err
}

// run has the sessions from first on and before end, some beside each other.
func (k *soak) run(t *testing.T, first, end int) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(first))
	var wg sync.WaitGroup
	for worker := range soakWorkers {
		wg.Go(func() {
			for !t.Failed() {
				n := int(next.Add(1)) - 1
				if n >= end {
					return
				}
				i := n % len(k.wires)
				err := k.session(t.Context(), k.lanes[worker*len(k.wires)+i], k.wires[i], n)
				if worker == 0 && err == nil {
					err = k.alone(t.Context(), k.wires[i], n)
				}
				if err != nil {
					t.Errorf("session %d on %s: %v", n, k.wires[i].name, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// alone opens and closes a separate lane, for the environment and the agent, now and then with a
// session in it.
func (k *soak) alone(ctx context.Context, w wire, n int) error {
	l, err := k.newLane(w)
	if err == nil && n%8 == 0 {
		err = k.session(ctx, l, w, n)
	}
	if err != nil {
		return err
	}
	return l.close()
}

// session has one session, and checks the effects of its tools.
func (k *soak) session(ctx context.Context, l *lane, w wire, n int) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.play = &soakPlay{
		soak: k, wire: w, rnd: rand.New(rand.NewPCG(k.seed, uint64(n))), cancel: cancel,
	}
	srv, err := llmtest.Start(w.brain(l.play.answer))
	if err != nil {
		return err
	}
	defer srv.Close()
	if l.client, err = w.client(srv, 0); err != nil {
		return err
	}
	s, err := l.agent.NewSession(ctx, agent.SessionOptions{})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.Close(), os.RemoveAll(s.Dir()), os.RemoveAll(filepath.Join(l.dir,
			"log")))
	}()
	for turn := 0; turn < soakTurns; turn += 5 {
		res, err := s.Submit(ctx, "go on")
		if l.play.aborted {
			if res.Status != agent.StatusAborted {
				return fmt.Errorf("aborted, it ended with %s, %w", res.Status, err)
			}
			return nil
		}
		if err != nil || res.Status != agent.StatusCompleted {
			return fmt.Errorf("it ended with %s, %w", res.Status, err)
		}
	}
	if violations := srv.TakeViolations(); len(violations) > 0 {
		return fmt.Errorf("violations: %s", violations)
	}
	log, err := os.ReadFile(filepath.Join(l.dir, "log"))
	if want := "0b\n5b\n10b\n15b\n"; err != nil || string(log) != want {
		return fmt.Errorf("the calls wrote %q, %w; want %q", log, err, want)
	}
	return nil
}

// soakPlay is the model of one session.
type soakPlay struct {
	soak   *soak
	wire   wire
	rnd    *rand.Rand
	cancel func()
	turn   int
	// answered is set when the input that ends before turn has been answered.
	answered bool
	// aborted is set when the run is to end at once, and atStart when that is to be once its call
	// runs.
	aborted, atStart bool
}

// answer gives the next call, or a wrong answer.
func (p *soakPlay) answer(*llmtest.Request) llmtest.Reply {
	if p.rnd.Float64() < soakFaultRate {
		return p.fault()
	}
	if p.turn%5 == 0 && p.turn > 0 && !p.answered {
		p.answered = true
		return llmtest.Text("done so far")
	}
	p.answered = false
	p.turn++
	return llmtest.Reply{Reasoning: "hm", Text: "next", Calls: []llmtest.Call{p.call(p.turn - 1)}}
}

// call is the call of a turn. Each fifth is a command, which is run by the shell itself.
func (p *soakPlay) call(turn int) llmtest.Call {
	const file = "f"
	switch first := strconv.Itoa(turn / 5 * 5); turn % 5 {
	case 0:
		return use("write_file", map[string]any{"file_path": file, "content": first + "a\n"})
	case 1:
		if p.wire.profile.ID == "openai" {
			return use("apply_patch", map[string]any{
				"patch": "*** Begin Patch\n*** Update File: " + file + "\n@@\n-" + first + "a\n+" + first +
					"b\n*** End Patch\n",
			})
		}
		return use("edit_file", map[string]any{
			"file_path": file, "old_string": first + "a", "new_string": first + "b",
		})
	case 2:
		return use("read_file", map[string]any{"file_path": file})
	case 3:
		return shell("read line < " + file + ` && echo "$line" >> log`)
	}
	return use("list_dir", map[string]any{"path": "."})
}

// fault is an answer that is wrong, or a call that takes too long. The turn comes after it.
func (p *soakPlay) fault() llmtest.Reply {
	lost := llmtest.Reply{Text: "this is lost", Calls: []llmtest.Call{shell("echo lost >> log")}}
	long := "sleep " + p.soak.marker + " & sleep " + p.soak.marker
	if p.rnd.IntN(4) == 0 {
		long = "trap '' TERM; " + long
	}
	name, reply := "", llmtest.Reply{}
	switch p.rnd.IntN(8) {
	case 0:
		name, lost.Fault.Cut = "cut in text", llmtest.AtText
		reply = lost
	case 1:
		name, lost.Fault.Cut = "cut at the end", llmtest.AtEnd
		reply = lost
	case 2:
		name, reply.Fault = "429", llmtest.TooMany("1", "")
	case 3:
		name, reply.Fault = "500", llmtest.Fault{Status: http.StatusInternalServerError}
	case 4:
		name = "wrong call"
		bad, _ := p.wire.bad("shell")
		reply = llmtest.Use(bad)
	case 5:
		name, reply = "timeout", llmtest.Use(use("shell", map[string]any{
			"command": long, "timeout_ms": 50,
		}))
	case 6:
		name, reply = "abort in a call", llmtest.Use(shell(long))
		p.aborted, p.atStart = true, true
	case 7:
		name, reply = "abort in an answer", llmtest.Reply{
			Text:  "some text of pieces",
			Fault: llmtest.Fault{Hang: llmtest.AtEnd},
		}
		p.aborted = true
	}
	p.soak.mu.Lock()
	p.soak.faults[name]++
	p.soak.mu.Unlock()
	return reply
}

// see ends the run where it is to be ended.
func (p *soakPlay) see(e event.Event) error {
	if p.aborted && (p.atStart && e.Kind() == event.KindToolCallStart || !p.atStart &&
		e.Kind() == event.KindTextDelta) {
		p.cancel()
	}
	return nil
}

// counts returns how often each fault occurred.
func (k *soak) counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.faults
}

// close closes the lanes.
func (k *soak) close(t *testing.T) {
	t.Helper()
	for _, l := range k.lanes {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}
