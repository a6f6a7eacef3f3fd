package agent

import (
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// addResult records the end of an agent's task. Messages that arrived too late to steer the agent
// are its next task, if it completed this one.
func (a *subagents) addResult(g *subagent, res RunResult, err error) (task string, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g.state.Output, g.state.Turns = res.Final, res.Turns
	status := tool.AgentCompleted
	switch {
	case res.Status != StatusCompleted:
		status, g.state.Problem = tool.AgentFailed, problem(res, err)
	case res.Exit != nil:
		g.state.Output = strings.TrimSpace(g.state.Output + "\n\n" + res.Exit.Reason)
	}
	a.results = append(a.results, res.Agents...)
	a.results = append(a.results, event.AgentResult{
		ID: g.state.ID, ParentID: g.session.origin.ParentID,
		Kind: g.state.Kind, Status: string(status), Turns: res.Turns, Usage: res.Usage,
		CostUSD: res.CostUSD,
	})
	for _, c := range res.Changes {
		c.Path = a.pathOf(g, c.Path)
		a.changes = mergeChange(a.changes, c)
	}
	messages := append(res.Undelivered, g.late...)
	g.late = nil
	switch {
	case len(messages) == 0:
	case status == tool.AgentCompleted && a.active:
		return strings.Join(messages, "\n\n"), true
	case status == tool.AgentFailed:
		g.state.Problem += "; it did not get your last message"
	}
	g.state.Status = status
	return "", false
}

// pathOf converts the path of an agent's change, which may be relative to the agent's working
// directory, to one of this session.
func (a *subagents) pathOf(g *subagent, name string) string {
	parent, child := a.s.cfg.Env, g.session.cfg.Env
	if parent == nil || child == nil {
		return name
	}
	info, dir := parent.Info(), child.Info().WorkDir
	if dir == info.WorkDir || path.IsAbs(name) || info.OS == "windows" && len(name) > 1 &&
		name[1] == ':' {
		return name
	}
	if rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(info.WorkDir, "/")+"/"); ok {
		return path.Join(rel, name)
	}
	return path.Join(dir, name)
}

// problem describes, for a model, why a run did not complete its task.
func problem(res RunResult, err error) string {
	switch {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "agent: ")
	case res.Status == StatusLimit:
		return "the limit of " + strings.ReplaceAll(res.Limit, "_", " ") + " was reached"
	case res.Question != "":
		return "it needs an answer: " + res.Question
	case res.Exit != nil && res.Exit.Reason != "":
		return res.Exit.Reason
	}
	return strings.ReplaceAll(string(res.Status), "_", " ")
}
