package agent

import (
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// note keeps how an agent's work has ended. A message that came when it was too late to steer the
// agent is its next task.
func (a *subagents) note(g *subagent, res Result, err error) (task string, more bool) {
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
	a.usage = a.usage.Add(res.Usage)
	a.worked = append(a.worked, res.Agents...)
	a.worked = append(a.worked, event.AgentResult{
		ID: g.state.ID, ParentID: g.session.origin.ParentID,
		Kind: g.state.Kind, Status: string(status), Turns: res.Turns, Usage: res.Usage,
	})
	for _, c := range res.Changes {
		c.Path = a.changed(g, c.Path)
		a.changes = mergeChange(a.changes, c)
	}
	if status == tool.AgentCompleted && a.active {
		if messages := g.session.takeSteering(); len(messages) > 0 {
			return strings.Join(messages, "\n\n"), true
		}
	}
	g.state.Status = status
	return "", false
}

// changed is the name that this session has for a file that an agent has changed, which names it
// within its own folder.
func (a *subagents) changed(g *subagent, name string) string {
	parent, child := a.s.agent.cfg.Env, g.session.agent.cfg.Env
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

// problem says in words why a run did not do its work.
func problem(res Result, err error) string {
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
