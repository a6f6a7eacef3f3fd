package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// reciteEvery is the number of rounds after which the model is told its open plan again.
const reciteEvery = 10

// planner keeps the plan of a session. It implements tool.Planner.
type planner struct {
	s *Session

	mu   sync.Mutex
	plan plan.Plan
	// changed means that the model has changed the plan since it was recited, and rounds counts the
	// rounds since then.
	changed bool
	rounds  int
	// told means that the model knows what the planner is for.
	told bool
}

var _ tool.Planner = (*planner)(nil)

// planTools returns the tools of the planner; none without one.
func (s *Session) planTools(cfg *Config) []tool.Tool {
	if !cfg.Planner {
		return nil
	}
	s.planner = &planner{}
	return tool.PlanTools(s.planner)
}

// Plan implements tool.Planner.
func (p *planner) Plan() plan.Plan {
	if p == nil {
		return plan.Plan{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan
}

// SetPlan implements tool.Planner.
func (p *planner) SetPlan(_ context.Context, next plan.Plan) error {
	if err := p.s.store.Append(session.TypePlan, next); err != nil {
		return err
	}
	p.mu.Lock()
	p.plan, p.changed = next, true
	p.mu.Unlock()
	return p.s.emit(p.s.agents.currentInput().RunID, event.PlanUpdated{Plan: next})
}

// Delegates implements tool.Planner.
func (p *planner) Delegates() bool { return p.s.agents.offers("spawn_agent") }

// forget makes the next round recite the plan.
func (p *planner) forget() {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed = true
	}
}

// recite returns the open plan for the model after a round that has changed it, or after
// reciteEvery other rounds; otherwise an empty text.
func (p *planner) recite() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds++
	if !p.plan.IsOpen() || !p.changed && p.rounds < reciteEvery {
		return ""
	}
	p.changed, p.rounds = false, 0
	return p.plan.Recite()
}

// planWrite is the tool that makes a plan.
const planWrite = "plan_write"

// plannerTools are those of Config.Planner.
var plannerTools = [...]string{planWrite, "plan_update", "plan_read"}

// plans reports whether the model may plan in this run.
func (l *loop) plans() bool {
	if l.planner == nil {
		return false
	}
	if l.tools == nil {
		l.offerTools()
	}
	return slices.Contains(l.offered, planWrite)
}

// note returns a text for a model without a plan that does not know the planner yet, or "".
func (p *planner) note() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told || p.plan.IsOpen() {
		return ""
	}
	p.told = true
	return planFirstText
}

// restore makes a new planner continue that of a record.
func (p *planner) restore(r *session.Record) {
	if p == nil {
		return
	}
	p.plan, p.changed = r.Plan, true
	p.told = slices.ContainsFunc(
		r.Turns,
		func(t session.Turn) bool { return t.Text() == planFirstText },
	)
}

// Plan returns the plan of the session; the zero value without one.
func (s *Session) Plan() plan.Plan { return s.planner.Plan() }
