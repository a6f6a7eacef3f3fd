package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// notes returns the messages of the loop in the history whose text has part.
func notes(s *agent.Session, part string) (list []string) {
	for _, turn := range s.History() {
		for _, p := range turn.Parts {
			if strings.Contains(p.Text, part) {
				list = append(list, p.Text)
			}
		}
	}
	return list
}

// looks are n answers, each with a call and so many tokens.
func looks(n int, use llm.Usage) (list []answer) {
	for i := range n {
		list = append(list, answer{
			calls: []llm.ToolCall{call(fmt.Sprint(i), "look", object{"n": i})}, usage: use,
		})
	}
	return list
}

// TestLimitIsNear tells the model once when it has used 80 % of a limit, and never without one.
func TestLimitIsNear(t *testing.T) {
	price := &profile.Price{Input: 1000}
	for name, tt := range map[string]struct {
		limits agent.Limits
		after  int // requests before the message
		want   string
	}{
		"turns":  {agent.Limits{MaxTurns: 10}, 8, "8 of 10 requests to the model"},
		"rounds": {agent.Limits{MaxToolRounds: 5}, 4, "4 of 5 rounds of tool calls"},
		"calls":  {agent.Limits{MaxToolCalls: 20}, 16, "16 of 20 tool calls"},
		"tokens": {agent.Limits{MaxTokens: 20_000}, 16, "16000 of 20000 tokens"},
		"money":  {agent.Limits{MaxCost: 20}, 16, "16 of 20 US dollars"},
		"none":   {agent.Limits{}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var n callLog
			m := &model{answers: looks(30, llm.Usage{Input: 1000})}
			cfg := config(m, n.tool("look", true))
			cfg.Limits, cfg.Profile.Price = tt.limits, price
			cfg.Limits.NoLoopDetection = true
			ev := watch(&cfg)
			s := newSession(t, cfg)
			if _, err := s.Submit(t.Context(), "go"); err != nil {
				t.Fatal(err)
			}
			got := notes(s, "ends at that limit")
			if tt.want == "" {
				if len(got) > 0 {
					t.Errorf("%q", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) ||
				ev.count(event.KindSteeringInjected) != 1 {
				t.Fatalf("%q", got)
			}
			for i, want := range map[int]bool{tt.after - 1: false, tt.after: true} {
				list := m.request(t, i).Messages
				if is := strings.Contains(list[len(list)-1].Text(), tt.want); is != want {
					t.Errorf("request %d has it: %v", i, is)
				}
			}
		})
	}
}

// TestTimeIsNear tells the root agent and its sub-agent that their time is almost over.
func TestTimeIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context, llm.Request) { time.Sleep(4 * time.Minute) }
		look := looks(3, llm.Usage{})
		look[0].before, look[1].before = slow, slow
		c := one(nil, look...)
		var n callLog
		cfg := treeConfig(c, n.tool("look", true))
		cfg.Limits.MaxDuration = 10 * time.Minute
		s := newSession(t, cfg)
		if _, err := s.Submit(t.Context(), "go"); err != nil {
			t.Fatal(err)
		}
		const want = "8m0s of 10m0s"
		if got := notes(s, want); len(got) != 1 {
			t.Errorf("%q", got)
		}
		list := c.request(t, "agent_1", 2).Messages
		if !strings.Contains(list[len(list)-1].Text(), want) {
			t.Errorf("%+v", list[len(list)-1])
		}
	})
}

// TestAnswerFitsLimit has the server cut answers where a limit ends.
func TestAnswerFitsLimit(t *testing.T) {
	var n callLog
	m := &model{answers: looks(9, llm.Usage{Input: 2000})}
	cfg := config(m, n.tool("look", true))
	cfg.Profile.AnswerTokens = 4000
	cfg.Limits.MaxTokens = 9500
	if res := submit(t, newSession(t, cfg), "go"); res.Limit != "tokens" {
		t.Fatalf("%+v", res)
	}
	for i, want := range []int{4000, 4000, 3500, 1500} {
		// The messages since the last answer count, too.
		if got := m.request(t, i).MaxOutputTokens; got > want || got < want-100 {
			t.Errorf("request %d may have %d tokens, not %d", i, got, want)
		}
	}
	if len(m.requests) != 4 {
		t.Errorf("%d requests", len(m.requests))
	}
}

// TestUnknownPrice fails before a request whose price is not known.
func TestUnknownPrice(t *testing.T) {
	m := &model{}
	cfg := config(m)
	cfg.Limits.MaxCost = 1
	for name, tt := range map[string]struct {
		price *profile.Price
		model string
	}{
		"no price":      {nil, "m"},
		"another model": {&profile.Price{}, "other"},
	} {
		cfg.Profile.Price, cfg.Settings.Model = tt.price, tt.model
		_, err := newSession(t, cfg).Submit(t.Context(), "go")
		if !errors.Is(err, agent.ErrConfig) || !strings.Contains(err.Error(), strconv.Quote(tt.model)) ||
			len(m.requests) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMoneyOfSubagents has sub-agents that use up the money of their parent.
func TestMoneyOfSubagents(t *testing.T) {
	var n callLog
	c := one(object{"max_turns": 1000}, looks(300, llm.Usage{Input: 500, Output: 500})...)
	cfg := treeConfig(c, n.tool("look", true))
	cfg.Limits.MaxCost = 0.5
	cfg.Profile.Price = &profile.Price{Input: 1, Output: 10}
	res, err := newSession(t, cfg).Submit(t.Context(), "go")
	if err != nil || res.Status != agent.StatusLimit || res.Limit != "cost" {
		t.Fatalf("%+v, %v", res, err)
	}
	if len(res.Agents) != 1 || res.Agents[0].Status != string(tool.AgentFailed) {
		t.Errorf("%+v", res.Agents)
	}
	cost := cfg.Profile.Price.Of(res.Usage)
	if cost > 0.5 || cost < 0.48 {
		t.Errorf("it cost %f dollars", cost)
	}
	if got := res.Agents[0].CostUSD; got == nil || math.Abs(*got-cost) > 1e-7 {
		t.Errorf("the sub-agent cost %v, want %f", got, cost)
	}
	if res.CostUSD != nil {
		t.Errorf("it cost %f dollars, although the usage of the root agent is not known", *res.CostUSD)
	}
}

// TestSharedBudget has two sessions that use up the money of one budget at the same time.
func TestSharedBudget(t *testing.T) {
	const whole, spent = 0.5, 0.1
	budget := agent.NewBudget(0, whole, 0, spent)
	price := &profile.Price{Input: 1, Output: 10}
	var runs sync.WaitGroup
	var costs [2]float64
	for i := range costs {
		var n callLog
		m := &model{answers: looks(300, llm.Usage{Input: 500, Output: 500})}
		cfg := config(m, n.tool("look", true))
		cfg.Budget, cfg.Profile.Price = budget, price
		s := newSession(t, cfg)
		runs.Go(func() {
			res, err := s.Submit(t.Context(), "go")
			if err != nil || res.Status != agent.StatusLimit || res.Limit != agent.LimitBudget {
				t.Errorf("%+v, %v", res, err)
			}
			costs[i] = price.Of(res.Usage)
		})
	}
	runs.Wait()
	if sum := costs[0] + costs[1]; sum > whole-spent || sum < 0.95*(whole-spent) {
		t.Errorf("the sessions cost %v dollars", costs)
	}
}

// TestCost has the price of each answer in its event and its turn, and of each model in the result.
// One whose price is not known makes the sum unknown.
func TestCost(t *testing.T) {
	use := llm.Usage{Input: 1_000_000, CacheRead: 2_000_000, Output: 100_000, Reasoning: 50_000}
	m := &model{answers: []answer{{text: "one", usage: use}, {text: "two", usage: use}}}
	cfg := config(m)
	cfg.Profile.Price = &profile.Price{Input: 1, CacheRead: 0.1, Output: 10}
	ev := watch(&cfg)
	s := newSession(t, cfg)
	const each = 2.2
	res := submit(t, s, "go")
	if res.CostUSD == nil || *res.CostUSD != each {
		t.Errorf("the run cost %v", res.CostUSD)
	}
	s.Update(func(set *agent.Settings) { set.Model = "other" })
	later := submit(t, s, "go on")
	if later.CostUSD != nil || len(later.Models) != 1 || later.Models[0].Model != "other" {
		t.Errorf("with another model: %+v", later.Models)
	}
	all := s.Models()
	if len(all) != 2 || all[0].Model != "m" || all[0].Answers != 1 || all[0].Usage != use ||
		*all[0].CostUSD != each || all[1].CostUSD != nil {
		t.Errorf("the session used %+v", all)
	}
	if turn := s.History()[1]; turn.CostUSD == nil || *turn.CostUSD != each {
		t.Errorf("the turn is %+v", turn)
	}
	var got []*float64
	for _, e := range ev.all {
		switch d := e.Data.(type) {
		case event.TextEnd:
			got = append(got, d.CostUSD)
		case event.ProcessingEnd:
			got = append(got, d.CostUSD)
		}
	}
	if len(got) != 4 || *got[0] != each || *got[1] != each || got[2] != nil || got[3] != nil {
		t.Errorf("the events have %v", got)
	}
}

// TestFailedRequestsReserveNothing has two agents of which each reserves all, and fails.
func TestFailedRequestsReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := answer{
			before: func(context.Context, llm.Request) { time.Sleep(time.Minute) },
			err:    &llm.Error{Kind: llm.KindAuth, Message: "no"},
		}
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("a", nil), spawn("b", nil)),
				calls(onAgent("wait", "agent_1"), onAgent("wait", "agent_2")),
			},
			"agent_1": {failed}, "agent_2": {failed},
		}}
		cfg := treeConfig(c)
		cfg.Limits.MaxTokens = 30_000
		s := newSession(t, cfg)
		res := submit(t, s, "go")
		if res.Status != agent.StatusCompleted || c.sent("agent_1") != 1 || c.sent("agent_2") != 1 {
			t.Errorf("%+v", res)
		}
		if res.Turns != 5 {
			t.Errorf("%d turns", res.Turns)
		}
	})
}

// TestLimitsDuringRun reads the usage while it changes the limits.
func TestLimitsDuringRun(t *testing.T) {
	m := &model{answers: looks(3, llm.Usage{Input: 4000})}
	var n callLog
	cfg := config(m, n.tool("look", true))
	cfg.Limits.MaxTokens = 6000
	s := newSession(t, cfg)
	for i := range m.answers {
		m.answers[i].before = func(context.Context, llm.Request) {
			if err := s.UpdateLimits(func(l *agent.Limits) {
				l.MaxTokens = s.Usage().Total() + 10_000
			}); err != nil {
				t.Error(err)
			}
		}
	}
	if res := submit(t, s, "go"); res.Status != agent.StatusCompleted {
		t.Errorf("%+v", res)
	}
}

// TestQueuedMessagesCount ends a run before a request that a queued message makes too long.
func TestQueuedMessagesCount(t *testing.T) {
	m := &model{answers: looks(3, llm.Usage{Input: 1000})}
	var n callLog
	cfg := config(m, n.tool("look", true))
	cfg.Limits.MaxTokens = 9000
	s := newSession(t, cfg)
	long := strings.Repeat("long ", 8000)
	m.answers[0].before = func(context.Context, llm.Request) {
		if err := s.Steer(long); err != nil {
			t.Error(err)
		}
	}
	res := submit(t, s, "go")
	if res.Limit != "tokens" || len(m.requests) != 1 || len(res.Undelivered) != 1 {
		t.Errorf("%d requests, %+v", len(m.requests), res)
	}
}
