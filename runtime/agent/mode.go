package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/wrap"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// DefaultPlanFile is the name of the file of a plan.
const DefaultPlanFile = "PLAN.md"

// Modes gives sessions the modes build, in which tools do what the rules allow, and plan, in which
// they change nothing but the file of the plan. In plan mode commands run where the environment
// keeps them from changing files, and otherwise those that certainly read only; sub-agents are
// read-only. The tool plan_enter changes to plan mode, unless sub-agents are open that may change
// files, and plan_exit, which a human approves by Config.Approve, to build mode. Sub-agents have
// neither.
type Modes struct {
	// Plan starts sessions in plan mode.
	Plan bool
	// PlanFile is the name of the plan's file, relative to the working directory; empty means
	// DefaultPlanFile.
	PlanFile string
}

// modes is the mode of a session. A nil one is always in build mode.
type modes struct {
	file string
	// rules are those of plan mode, env the environment of its commands.
	rules *policy.Policy
	env   env.Environment

	mu       sync.Mutex
	planning bool
	// told means that the model knows that it plans.
	told bool
}

func newModes(cfg *Config) *modes {
	if cfg.Modes == nil {
		return nil
	}
	m := &modes{file: cmp.Or(cfg.Modes.PlanFile, DefaultPlanFile), planning: cfg.Modes.Plan}
	enforced := false
	if cfg.Env != nil {
		info := cfg.Env.Info()
		enforced = info.Strength(env.ConfinedCommands) == env.Enforced ||
			info.Strength(env.ReadOnlyFiles) == env.Enforced
		m.env = wrap.ReadOnly(cfg.Env, func(env.Command) error { return nil }) // rules have decided it
	}
	m.rules = planRules(m.file, enforced)
	return m
}

// planRules are the rules of plan mode. With enforced, commands cannot change files.
func planRules(file string, enforced bool) *policy.Policy {
	const source = "the mode plan"
	rules := []policy.Rule{
		{Permission: planExit, Action: policy.Ask, Source: source},
		{Permission: policy.ClassWrite, Pattern: policy.Escape(file), Action: policy.Allow},
		{Permission: policy.ClassWrite, Action: policy.Deny, Source: source},
		{Permission: string(policy.Safe), Action: policy.Allow},
		{Permission: policy.ClassRepeat, Action: policy.Allow},
	}
	if enforced {
		rules = append(rules, policy.Rule{Permission: policy.ClassShell, Action: policy.Allow})
	} else {
		rules = append(rules, policy.Preset("read-only").Rules...)
	}
	return &policy.Policy{Rules: rules, Default: policy.Deny}
}

// Tools of modes.
const (
	planEnter = "plan_enter"
	planExit  = "plan_exit"
)

// isPlanning reports whether the mode is plan.
func (m *modes) isPlanning() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.planning
}

// rulesOr returns the rules of the mode; build are those of build mode, which it may tighten.
func (m *modes) rulesOr(build *policy.Policy) *policy.Policy {
	if m.isPlanning() {
		return build.Tighten(m.rules)
	}
	return build
}

// offer returns the names of tools without those of another mode.
func (m *modes) offer(names []string) []string {
	other := planExit
	if m.isPlanning() {
		other = planEnter
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == other })
}

// forget makes note tell the model again.
func (m *modes) forget() {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = false
	}
}

// note returns a text for a model that plans and does not know it yet, or "".
func (m *modes) note() string {
	if !m.isPlanning() {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told {
		return ""
	}
	m.told = true
	return planText(m.file)
}

// modeTools returns the tools that change the mode of a session; none without modes.
func (s *Session) modeTools(cfg *Config) []tool.Tool {
	if cfg.Modes == nil {
		return nil
	}
	set := func(planning bool) error {
		s.mode.mu.Lock()
		defer s.mode.mu.Unlock()
		if s.mode.planning == planning {
			return errors.New("that mode has begun already")
		}
		s.mode.planning, s.mode.told = planning, planning
		return nil
	}
	changed := func(mode string) error {
		err := s.store.Append(session.TypeMode, session.Mode{Planning: mode == "plan"})
		if err != nil {
			return err
		}
		return s.emit(s.agents.currentInput().RunID, event.ModeChanged{Mode: mode})
	}
	return []tool.Tool{
		tool.PlanEnter(func(context.Context) (string, error) {
			if err := s.agents.plan(func() error { return set(true) }); err != nil {
				return "", err
			}
			return planText(s.mode.file), changed("plan")
		}),
		tool.PlanExit(func(_ context.Context, plan string) (string, error) {
			if err := set(false); err != nil {
				return "", err
			}
			return builtText(plan), changed("build")
		}),
	}
}
