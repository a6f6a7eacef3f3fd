package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// newBudget returns a budget below parent, which may be nil.
func newBudget(parent *budget, l Limits) *budget {
	b := &budget{}
	b.init(parent, func() Limits { return l })
	return b
}

func TestReserve(t *testing.T) {
	price := profile.Price{Input: 1, Output: 10} // a million tokens of an answer cost 10 dollars
	tokens := func(n int64) Limits { return Limits{MaxTokens: n} }
	tests := map[string]struct {
		root, own     Limits
		spent         cost
		input, answer int64
		most          int64
		limit         string
		value         int64
	}{
		"no limit":     {input: 1 << 40, answer: 5000, most: 5000},
		"room for all": {own: tokens(6000), input: 1000, answer: 5000, most: 5000},
		"room for a part": {
			own: tokens(6000), input: 3000, answer: 5000, most: 3000,
		},
		"room of the root": {
			root: tokens(6000), input: 3000, answer: 5000, most: 3000,
		},
		"little room": {
			own: tokens(4023), input: 3000, answer: 5000, limit: "tokens", value: 4023,
		},
		"least room":     {own: tokens(4024), input: 3000, answer: 5000, most: 1024},
		"a short answer": {own: tokens(3010), input: 3000, answer: 10, most: 10},
		"no room of the root": {
			root: tokens(3000), own: tokens(9000), input: 3000, answer: 5000, limit: "tokens", value: 3000,
		},
		"spent": {
			root: tokens(9000), spent: cost{tokens: 4000}, input: 1000, answer: 9000, most: 4000,
		},
		"turns": {own: Limits{MaxTurns: 2}, spent: cost{turns: 1}, answer: 10, most: 10},
		"no more turns": {
			own: Limits{MaxTurns: 2}, spent: cost{turns: 2}, answer: 10, limit: "turns", value: 2,
		},
		"turns of the root": {
			root: Limits{MaxTurns: 2}, spent: cost{turns: 2}, answer: 10, limit: "turns", value: 2,
		},
		"money": {own: Limits{MaxCost: 1}, input: 500_000, answer: 90_000, most: 50_000},
		"money that is spent": {
			root: Limits{MaxCost: 1}, spent: cost{dollars: 0.995}, answer: 90_000,
			limit: "cost", value: 1_000_000,
		},
		"the scarcest decides": {
			own: Limits{MaxCost: 1, MaxTokens: 40_000}, input: 10_000, answer: 90_000, most: 30_000,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := newBudget(nil, tt.root)
			b := newBudget(root, tt.own)
			b.settle(cost{}, tt.spent, nil)
			r, most, err := b.reserve(t.Context(), func() int64 { return tt.input }, tt.answer, price, false)
			var over *limitError
			if errors.As(err, &over) {
				if over.name != tt.limit || over.value != tt.value {
					t.Errorf("%+v", over)
				}
				return
			}
			if err != nil || most != tt.most || tt.limit != "" {
				t.Fatalf("%d tokens, %v", most, err)
			}
			b.settle(r, cost{turns: 1}, nil)
			if root.reserved != (cost{}) || b.reserved != (cost{}) {
				t.Errorf("left: %+v, %+v", root.reserved, b.reserved)
			}
		})
	}
}

// TestReserveWaits has an agent that waits for the end of the request of another one.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		input := func() int64 { return 1000 }
		root := newBudget(nil, Limits{MaxTokens: 10_000})
		a, b := newBudget(root, Limits{}), newBudget(root, Limits{})
		first, most, err := a.reserve(t.Context(), input, 50_000, profile.Price{}, false)
		if err != nil || most != 9000 {
			t.Fatalf("%d, %v", most, err)
		}
		ended, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		cancel(stop)
		if _, _, err := b.reserve(ended, input, 50_000, profile.Price{}, false); !errors.Is(err, stop) {
			t.Fatalf("it did not wait: %v", err)
		}
		got := make(chan int64)
		go func() {
			_, most, _ := b.reserve(t.Context(), input, 50_000, profile.Price{}, false)
			got <- most
		}()
		synctest.Wait()
		a.settle(first, cost{turns: 1, tokens: 3000}, nil)
		if most := <-got; most != 6000 {
			t.Errorf("then %d", most)
		}
	})
}

// TestBudgetHolds lets agents work until none gets another request. Together they never use more
// than the limits.
func TestBudgetHolds(t *testing.T) {
	price := profile.Price{Input: 3, Output: 15}
	limits := Limits{MaxTokens: 2_000_000, MaxCost: 12}
	root := newBudget(nil, limits)
	middle := newBudget(root, Limits{})
	var wg sync.WaitGroup
	for i := range 8 {
		b := newBudget([]*budget{root, middle}[i%2], Limits{})
		wg.Go(func() {
			for {
				input := rand.Int64N(20_000)
				r, most, err := b.reserve(t.Context(), func() int64 { return input }, 8000, price, false)
				if err != nil {
					return
				}
				u := llm.Usage{Input: input, Output: rand.Int64N(most + 1)}
				b.settle(r, cost{1, u.Total(), price.Of(u)}, nil)
			}
		})
	}
	wg.Wait()
	if s := root.spent; s.tokens > limits.MaxTokens || s.dollars > limits.MaxCost+1e-9 ||
		s.dollars < 0.95*limits.MaxCost && s.tokens < limits.MaxTokens*95/100 {
		t.Errorf("used %+v of %+v", s, limits)
	}
	if r := root.reserved; r.turns != 0 || r.tokens != 0 || r.dollars > 1e-9 || r.dollars < -1e-9 {
		t.Errorf("reserved: %+v", r)
	}
}
