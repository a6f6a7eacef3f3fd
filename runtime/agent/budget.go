package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

const (
	// leastAnswer is the least room for an answer, in tokens, for which a request is sent.
	leastAnswer = 1024
	// unknownAnswer is the room for an answer whose length the profile does not limit.
	unknownAnswer = 32_000
)

// cost is what requests take from the limits of a budget.
type cost struct {
	turns   int
	tokens  int64
	dollars float64
}

func (c *cost) add(d cost) {
	c.turns, c.tokens, c.dollars = c.turns+d.turns, c.tokens+d.tokens, c.dollars+d.dollars
}

func (c *cost) subtract(d cost) { c.add(cost{-d.turns, -d.tokens, -d.dollars}) }

// budget counts what an agent and all its sub-agents use, and reserves it before each request. The
// limits of the agents above count, too. All budgets of a tree share one lock.
type budget struct {
	parent *budget
	tree   *tree
	// shared means that sessions share it, whose models are not told how much of it is used.
	shared bool
	// limits returns the limits of the current run. It takes locks that callers of a budget may hold,
	// so nobody calls it with the lock of tree.
	limits func() Limits

	// The mutex of tree guards the fields below.
	spent, reserved cost
	// answered is what the answers of the session have used, and ofRun those of the current run.
	answered, ofRun []event.ModelUsage
	// guessed means that a server reported no usage.
	guessed bool
	// began is the start of the current run, by a clock that never jumps, and time all its time; zero
	// means no limit.
	began time.Time
	time  time.Duration
}

// LimitBudget is the limit, in RunResult.Limit, of a run that has no room in Config.Budget.
const LimitBudget = "budget"

// Budget bounds what the sessions of one or more agents use together: tokens, and money if the
// prices of their models are known. It is reserved before each request, as the limits of a session
// are. It is safe for concurrent use.
type Budget struct{ b budget }

// NewBudget returns a budget with a limit of tokens and one of US dollars, of which spent and
// spentUSD are used. A limit of zero is none.
func NewBudget(tokens int64, dollars float64, spent int64, spentUSD float64) *Budget {
	s := new(Budget)
	s.b.init(nil, func() Limits { return Limits{MaxTokens: tokens, MaxCost: dollars} })
	s.b.shared = true
	s.b.spent = cost{tokens: spent, dollars: spentUSD}
	return s
}

// root returns the budget above those of sessions; nil for a nil s.
func (s *Budget) root() *budget {
	if s == nil {
		return nil
	}
	return &s.b
}

// tree is what the budgets of a tree of agents share.
type tree struct {
	mu sync.Mutex
	// changed is closed when a reservation ends.
	changed chan struct{}
}

// init makes b the budget of an agent below parent, or of a root if that is nil.
func (b *budget) init(parent *budget, limits func() Limits) {
	b.parent, b.limits = parent, limits
	if parent != nil {
		b.tree = parent.tree
	} else {
		b.tree = &tree{changed: make(chan struct{})}
	}
}

// begin starts the time of a run, which the deadline of ctx ends.
func (b *budget) begin(ctx context.Context) {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.began, b.time, b.ofRun = time.Now(), 0, nil
	if deadline, ok := ctx.Deadline(); ok {
		b.time = deadline.Sub(b.began)
	}
}

// limitError is the limit that leaves no room for a request.
type limitError struct {
	name  string
	value int64
}

func (e *limitError) Error() string { return fmt.Sprintf("the limit of %s is reached", e.name) }

// errWait means that there will be room if the requests under way use less than they reserved.
var errWait = errors.New("other requests have reserved the rest")

// reserve takes a request from b and the budgets above it: the tokens that input returns, and the
// most tokens that its answer can have, at most answer. An extra request is beyond the limit of
// turns of b. While the requests of other agents have reserved the rest it waits. The error is a
// *limitError, or that of ctx.
func (b *budget) reserve(
	ctx context.Context, input func() int64, answer int64, p profile.Price, extra bool,
) (c cost, most int64, err error) {
	for {
		limits, in := b.chain(), input()
		if extra {
			limits[0].MaxTurns = 0
		}
		b.tree.mu.Lock()
		most, err := b.room(limits, in, answer, p)
		if err == nil {
			c := cost{1, in + most, p.Most(in, most)}
			for n := b; n != nil; n = n.parent {
				n.reserved.add(c)
			}
			b.tree.mu.Unlock()
			return c, most, nil
		}
		changed := b.tree.changed
		b.tree.mu.Unlock()
		if !errors.Is(err, errWait) {
			return cost{}, 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return cost{}, 0, context.Cause(ctx)
		}
	}
}

// chain returns the limits of b and of the budgets above it.
func (b *budget) chain() (list []Limits) {
	for ; b != nil; b = b.parent {
		list = append(list, b.limits())
	}
	return list
}

// room returns the tokens that limits, a chain, leave for an answer. The caller holds the lock.
func (b *budget) room(
	limits []Limits, input, answer int64, p profile.Price,
) (most int64, err error) {
	most = answer
	wait := false
	n := b
	for _, l := range limits {
		taken := n.spent
		taken.add(n.reserved)
		waits, shared := n.reserved.turns > 0, n.shared
		n = n.parent
		if l.MaxTurns > 0 && taken.turns >= l.MaxTurns {
			return 0, &limitError{"turns", int64(l.MaxTurns)}
		}
		fits := func(name string, limit, rest int64) error {
			switch {
			case rest >= min(answer, leastAnswer):
				most = min(most, rest)
			case waits:
				wait = true
			case shared:
				return &limitError{LimitBudget, limit}
			default:
				return &limitError{name, limit}
			}
			return nil
		}
		if l.MaxTokens > 0 {
			err = fits("tokens", l.MaxTokens, l.MaxTokens-taken.tokens-input)
		}
		if l.MaxCost > 0 && err == nil {
			err = fits("cost", microDollars(l.MaxCost), p.Affords(l.MaxCost-taken.dollars, input, answer))
		}
		if err != nil {
			return 0, err
		}
	}
	if wait {
		return 0, errWait
	}
	return most, nil
}

// microDollars returns an amount in millionths of a dollar.
func microDollars(dollars float64) int64 { return int64(dollars*1e6 + 0.5) }

// settle ends the reservation r of a request, which took c. used is what its answer used, of one
// model; none without an answer.
func (b *budget) settle(r, c cost, used []event.ModelUsage) {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	for n := b; n != nil; n = n.parent {
		n.reserved.subtract(r)
		n.spent.add(c)
		n.answered = event.AddUsage(n.answered, used...)
		n.ofRun = event.AddUsage(n.ofRun, used...)
	}
	close(b.tree.changed)
	b.tree.changed = make(chan struct{})
}

// guess notes that b has estimated tokens, and reports whether these are the first.
func (b *budget) guess() (first bool) {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	first = !b.guessed
	b.guessed = true
	return first
}

// total returns what the answers of the session have used, and the requests.
func (b *budget) total() (answered []event.ModelUsage, turns int) {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return slices.Clone(b.answered), b.spent.turns
}

// soFar returns what the session has used, as limits count it.
func (b *budget) soFar() session.Spent {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return session.Spent{Turns: b.spent.turns, Tokens: b.spent.tokens, USD: b.spent.dollars}
}

// restore makes b continue from what the session has used before. No run has started.
func (b *budget) restore(spent session.Spent, answered []event.ModelUsage) {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.spent = cost{spent.Turns, spent.Tokens, spent.USD}
	b.answered = slices.Clone(answered)
}

// run returns what the answers of the current run have used.
func (b *budget) run() []event.ModelUsage {
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return slices.Clone(b.ofRun)
}

// bounds reports whether b or a budget above it limits tokens, and whether one limits money.
func (b *budget) bounds() (tokens, money bool) {
	for _, l := range b.chain() {
		tokens, money = tokens || l.MaxTokens > 0, money || l.MaxCost > 0
	}
	return tokens, money
}

// share is the part of a limit that is used.
type share struct {
	limit       string
	used, whole float64
	// above is the number of agents between the loop and the one that has the limit.
	above int
}

// shares returns how much of each limit is used, of b and of the budgets above it.
func (b *budget) shares() []share {
	limits := b.chain()
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	var list []share
	n := b
	for i, l := range limits {
		if n.shared {
			break
		}
		list = append(
			list,
			share{"turns", float64(n.spent.turns), float64(l.MaxTurns), i},
			share{"tokens", float64(n.spent.tokens), float64(l.MaxTokens), i},
			share{"cost", n.spent.dollars, l.MaxCost, i},
			share{"time", float64(time.Since(n.began)), float64(n.time), i},
		)
		n = n.parent
	}
	return list
}
