package agent

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// request builds what the model is asked. It depends on the session's entries, tools and settings
// only. The tools are taken as they are now, and so for the calls of the answer.
func (l *loop) request() llm.Request {
	s := l.s
	cfg := &s.agent.cfg
	l.tools = s.registry.Clone()
	l.offered = offered(l.tools, cfg.Policy, l.in, cfg.Env)
	s.agents.offer(l.offered)
	s.mu.Lock()
	defer s.mu.Unlock()
	var specs []llm.ToolSpec
	for _, name := range l.offered {
		if t, ok := l.tools.Get(name); ok {
			specs = append(specs, t.ToolSpec)
		}
	}
	l.profile = cfg.Profile.WithModel(s.settings.Model)
	effort := s.settings.ReasoningEffort
	if !l.profile.SupportsReasoning {
		effort = ""
	}
	instructions := s.settings.Instructions
	if l.in.Instructions != "" {
		instructions = l.in.Instructions
	}
	history := messages(s.history)
	if !l.profile.SupportsVision {
		history, l.blind = withoutImages(history)
	}
	return llm.Request{
		Model:             s.settings.Model,
		System:            l.profile.System(s.surroundings, specs, instructions),
		Messages:          history,
		Tools:             specs,
		ReasoningEffort:   effort,
		MaxOutputTokens:   int(l.profile.AnswerTokens),
		ParallelToolCalls: l.profile.SupportsParallelToolCalls,
		Options:           l.profile.Options,
		SessionID:         s.id,
	}
}

// ask sends the request and turns the answer's pieces into events.
func (l *loop) ask(ctx context.Context) (llm.Response, error) {
	req := l.request()
	if err := l.keepPrompt(req); err != nil {
		l.breakWith(err)
		return llm.Response{}, err
	}
	l.asked = req
	l.warnEffort()
	l.warnImages()
	l.warnBefore(req)
	l.res.ModelCalls++
	var a llm.Assembler
	text := false
	for d, err := range l.s.agent.cfg.Client.Stream(ctx, req) {
		if err != nil {
			return llm.Response{}, err
		}
		a.Add(d)
		switch d.Kind {
		case llm.DeltaText:
			if !text {
				l.emit(event.TextStart{})
				text = true
			}
			l.emit(event.TextDelta{Text: d.Text})
		case llm.DeltaReasoning:
			l.emit(event.ReasoningDelta{Text: d.Text})
		case llm.DeltaRetry:
			text = false
			l.emit(event.Retry{
				Attempt: d.Retry.Attempt, DelayMS: d.Retry.Delay.Milliseconds(),
				Error: d.Retry.Err.Error(),
			})
		}
		if l.broken != nil {
			return llm.Response{}, l.broken
		}
	}
	return a.Response()
}

// keepPrompt writes what the request holds besides the history, if that has changed.
func (l *loop) keepPrompt(req llm.Request) error {
	now := promptEntry{
		Model: req.Model, ReasoningEffort: req.ReasoningEffort, System: req.System,
		Tools: req.Tools,
	}
	if reflect.DeepEqual(now, l.s.prompt) {
		return nil
	}
	if err := l.s.store.Append(entryPrompt, now); err != nil {
		return err
	}
	l.s.prompt = now
	return nil
}

// warnEffort tells, once a run, that the wish for reasoning is not passed on.
func (l *loop) warnEffort() {
	l.s.mu.Lock()
	effort := l.s.settings.ReasoningEffort
	l.s.mu.Unlock()
	if effort != "" && !l.profile.SupportsReasoning && l.res.ModelCalls == 0 {
		l.emit(event.Warning{Code: "reasoning_effort", Message: fmt.Sprintf(
			"the model is not known to reason; the reasoning effort %q is not passed on", effort)})
	}
}

// warnImages tells, once a session, that the model does not see images of the conversation.
func (l *loop) warnImages() {
	if l.blind == 0 || l.s.toldBlind {
		return
	}
	l.s.toldBlind = true
	l.emit(event.Warning{Code: "images", Message: fmt.Sprintf(
		"the model %s is not known to take images; it is told of the image instead of being shown it",
		l.profile.Model)})
}

// takeAnswer puts an answer into the history and returns its tool calls, with IDs that are unique
// in the session.
func (l *loop) takeAnswer(resp llm.Response) ([]call, error) {
	parts, calls := l.uniqueCalls(resp.Message.Parts)
	s := l.s
	untold, guessed := false, int64(0)
	s.mu.Lock()
	if used := resp.Usage.Total(); used > 0 {
		s.lastUsed = used
	} else {
		untold = s.guessed == 0
		guessed = approxTokens(l.asked) + approxTokens(llm.Request{Messages: []llm.Message{resp.Message}}) + 1
	}
	s.mu.Unlock()
	s.spend(resp.Usage, guessed)
	l.res.Usage = l.res.Usage.Add(resp.Usage)
	if untold && l.limits().MaxTokens > 0 {
		l.emit(event.Warning{
			Code: "usage_unknown",
			Message: "the model's server does not tell how many tokens it used; limits count a guess of " +
				"four characters a token",
		})
	}
	if text := resp.Message.Text(); text != "" {
		l.res.Final = text
	}
	if len(parts) > 0 {
		err := l.record(Turn{
			Kind: TurnAssistant, Parts: parts, Usage: resp.Usage, Model: resp.Model,
			ResponseID: resp.ResponseID,
		})
		if err != nil {
			return nil, err
		}
	}
	l.emit(event.TextEnd{
		Text: resp.Message.Text(), Reasoning: reasoningText(parts), ToolCalls: len(calls),
		Model: resp.Model, Usage: resp.Usage,
	})
	l.warnAfter()
	return calls, nil
}

func reasoningText(parts []llm.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Kind == llm.PartReasoning && p.Reasoning != nil {
			b.WriteString(p.Reasoning.Text)
		}
	}
	return b.String()
}

// call is a tool call of an answer. Some servers reuse IDs or give none, so a call is known by the
// run, the number of the model call, its position in the answer, and its ID.
type call struct {
	llm.ToolCall
	position int
	// duplicate means that an earlier call of the same answer has the same ID; it is not run.
	duplicate bool
	// overLimit means that the run's limit of calls was reached before it; it is not run.
	overLimit bool
	// original is the ID that the model gave.
	original string
}

// uniqueCalls gives every tool call an ID that no other call of the session has, in the history and
// in the returned calls alike.
func (l *loop) uniqueCalls(parts []llm.Part) ([]llm.Part, []call) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]llm.Part, len(parts))
	var calls []call
	inAnswer := map[string]bool{}
	for i, p := range parts {
		out[i] = p
		if p.Kind != llm.PartToolCall || p.ToolCall == nil {
			continue
		}
		c := call{ToolCall: *p.ToolCall, position: len(calls), original: p.ToolCall.ID}
		c.duplicate = c.ID != "" && inAnswer[c.ID]
		inAnswer[c.ID] = true
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%d_%d", len(s.history), c.position)
		}
		for base, n := c.ID, 2; s.calls[c.ID] > 0; n++ {
			c.ID = fmt.Sprintf("%s_%d", base, n)
		}
		s.calls[c.ID]++
		named := c.ToolCall
		out[i].ToolCall = &named
		calls = append(calls, c)
	}
	return out, calls
}

// contextShare is the part of the context window from which on there is a warning.
const contextShare = 0.8

// warnBefore guesses the context's use as long as no answer has told it.
func (l *loop) warnBefore(req llm.Request) {
	s := l.s
	s.mu.Lock()
	first := s.lastUsed == 0
	used := int64(0)
	if first {
		used = approxTokens(req)
	}
	s.mu.Unlock()
	if first {
		l.warnContext(used)
	}
}

func (l *loop) warnAfter() {
	l.s.mu.Lock()
	used := l.s.lastUsed
	l.s.mu.Unlock()
	if used > 0 {
		l.warnContext(used)
	}
}

// warnContext warns once each time the use of the context rises above the share.
func (l *loop) warnContext(used int64) {
	window := l.profile.ContextWindow
	if window <= 0 {
		return
	}
	over := float64(used) >= contextShare*float64(window)
	l.s.mu.Lock()
	crossed := over && !l.s.warned
	l.s.warned = over
	l.s.mu.Unlock()
	if crossed {
		l.emit(event.Warning{
			Code: "context_usage",
			Message: fmt.Sprintf("the conversation takes about %d%% of the model's context (%d of %d "+
				"tokens)",
				used*100/window, used, window),
		})
	}
}
