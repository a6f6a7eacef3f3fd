package agent

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// contextShare is the part of the context that a conversation fills when the loop warns. The room
// for the answer is not part of that context.
const contextShare = 0.8

// buildRequest builds the next request from the history, the tools and the settings only, and the
// number of images in it that the model cannot see. The answer's calls use the same tools.
func (l *loop) buildRequest() (req llm.Request, unseen int) {
	settings := l.next
	l.offerTools()
	var specs []llm.ToolSpec
	for _, name := range l.offered {
		if t, ok := l.tools.Get(name); ok {
			specs = append(specs, t.ToolSpec)
		}
	}
	l.model = l.profile.WithModel(settings.Model)
	effort := settings.ReasoningEffort
	if !l.model.SupportsReasoning {
		effort = ""
	}
	instructions := settings.Instructions
	if l.in.Instructions != "" {
		instructions = l.in.Instructions
	}
	instructions = strings.TrimSpace(instructions + "\n\n" + l.kindInstructions)
	list := session.Messages(l.history.list(), l.history.pruned)
	if !l.model.SupportsVision {
		list, unseen = withoutImages(list)
	}
	return llm.Request{
		Model:             settings.Model,
		System:            l.buildSystem(l.model, l.surroundings, specs, instructions),
		Messages:          list,
		Tools:             specs,
		ReasoningEffort:   effort,
		MaxOutputTokens:   l.answerTokens(),
		ParallelToolCalls: l.model.SupportsParallelToolCalls,
		NoToolCalls:       l.noCalls,
		Options:           l.model.Options,
		SessionID:         l.sessionID,
		RunID:             l.in.RunID,
		ModelCall:         l.res.ModelCalls + 1,
	}, unseen
}

// offerTools sets the tools that the calls of an answer may name.
func (l *loop) offerTools() {
	l.tools = l.registry.Clone()
	l.offered = l.mode.offer(offered(l.tools, l.policy, l.mode.rulesOr(l.rules), l.in, l.env))
	l.agents.offer(l.offered)
}

// stream sends the next request and emits the answer while it arrives.
func (l *loop) stream(ctx context.Context) (llm.Response, error) {
	req, unseen := l.buildRequest()
	if err := l.storePrompt(req); err != nil {
		l.fail(err)
		return llm.Response{}, err
	}
	l.request = req
	l.warnReasoning()
	l.warnImages(unseen)
	if l.history.contextTokens == 0 {
		l.warnContext(approxTokens(req))
	}
	if err := l.storeRequest(req, l.res.ModelCalls+1); err != nil {
		return llm.Response{}, err
	}
	l.res.ModelCalls++
	l.sent = true
	a := l.aggregate()
	text := false
	for d, err := range l.client.Stream(ctx, req) {
		if err != nil {
			return llm.Response{}, err
		}
		a.Add(d)
		switch d.Kind {
		case llm.DeltaText:
			if !text {
				l.send(event.TextStart{})
				text = true
			}
			l.send(event.TextDelta{Text: d.Text})
		case llm.DeltaReasoning:
			l.send(event.ReasoningDelta{Text: d.Text})
		case llm.DeltaToolCall, llm.DeltaArguments:
			l.sendArguments(d)
		case llm.DeltaRetry:
			text = false
			l.send(l.storeRetry(*d.Retry, l.res.ModelCalls))
		}
		if err := l.failure(); err != nil {
			return llm.Response{}, err
		}
	}
	return a.Response()
}

// sendArguments sends a piece of the arguments of a call, if that is wanted.
func (l *loop) sendArguments(d llm.Delta) {
	if !l.argumentDeltas {
		return
	}
	e := event.ToolArgumentsDelta{Index: d.Index, Text: d.Text}
	if d.Call != nil {
		e.Name, e.Text = d.Call.Name, d.Call.Arguments
	}
	l.send(e)
}

// storePrompt appends the parts of the request outside the history, if they have changed.
func (l *loop) storePrompt(req llm.Request) error {
	now := session.Prompt{
		Model: req.Model, ReasoningEffort: req.ReasoningEffort, System: req.System, Tools: req.Tools,
	}
	if reflect.DeepEqual(now, l.history.prompt) {
		return nil
	}
	if err := l.store.Append(session.TypePrompt, now); err != nil {
		return err
	}
	l.history.prompt = now
	return nil
}

// storeRequest appends the start of a request with that number in the run; zero for a summary. An
// error ends the run.
func (l *loop) storeRequest(req llm.Request, number int) error {
	err := l.store.Append(session.TypeModelRequest, session.ModelRequest{
		RunID: l.in.RunID, ModelCall: number, Model: req.Model,
	})
	if err != nil {
		l.fail(err)
	}
	return err
}

// storeRetry appends a retry of the request with that number, and returns its event. An error ends
// the run.
func (l *loop) storeRetry(r llm.RetryNotice, number int) event.Retry {
	e := event.Retry{
		Attempt: r.Attempt, DelayMS: r.Delay.Milliseconds(), Error: r.Err.Error(),
	}
	err := l.store.Append(session.TypeRetry, session.Retry{
		RunID: l.in.RunID, ModelCall: number, Retry: e,
	})
	if err != nil {
		l.fail(err)
	}
	return e
}

// warnReasoning warns, once a run, that the request has no reasoning effort.
func (l *loop) warnReasoning() {
	effort := l.settings().ReasoningEffort
	if effort != "" && !l.model.SupportsReasoning && l.res.ModelCalls == 0 {
		l.send(event.Warning{Code: "reasoning_effort", Message: fmt.Sprintf(
			"the profile lists no reasoning for the model; requests omit the reasoning effort %q", effort)})
	}
}

// warnImages warns, once a session, that the model does not see images of the conversation.
func (l *loop) warnImages(unseen int) {
	if unseen == 0 || l.history.imagesWarned {
		return
	}
	l.history.imagesWarned = true
	l.send(event.Warning{Code: "images", Message: fmt.Sprintf(
		"the profile lists no image input for the model %s; it gets a text instead of each image",
		l.model.Model)})
}

// warnContext warns each time the use of the context rises above contextShare.
func (l *loop) warnContext(used int64) {
	room := l.room()
	if room <= 0 {
		return
	}
	over := float64(used) >= contextShare*float64(room)
	if over && !l.history.contextWarned {
		l.send(event.Warning{Code: "context_usage", Message: fmt.Sprintf(
			"the conversation takes about %d%% of the model's context beside an answer (%d of %d tokens)",
			used*100/room, used, room)})
	}
	l.history.contextWarned = over
}

// recordAnswer adds an answer to the history and returns its tool calls, with IDs that are unique
// in the session.
func (l *loop) recordAnswer(resp llm.Response) ([]call, error) {
	parts, calls := l.uniqueCalls(resp.Message.Parts)
	dollars := l.countTokens(resp, parts)
	l.silent = strings.TrimSpace(resp.Message.Text()) == ""
	text := l.partial + resp.Message.Text()
	if text != "" {
		l.res.Final = text
	}
	l.partial = text
	if resp.Finish != llm.FinishLength {
		l.partial, l.cuts = "", 0
	}
	if len(parts) > 0 {
		turn := session.Turn{
			Kind: session.TurnAssistant, Parts: parts, Usage: resp.Usage, CostUSD: dollars,
			Model: resp.Model, ResponseID: resp.ResponseID,
		}
		if resp.Finish == llm.FinishLength || resp.Finish == llm.FinishContentFilter {
			turn.Finish = resp.Finish
		}
		turn.Reflection = l.machine.state == StateReflecting
		if err := l.record(turn); err != nil {
			return nil, err
		}
	}
	l.send(event.TextEnd{
		Text: resp.Message.Text(), Reasoning: reasoningText(parts), ToolCalls: len(calls),
		Model: resp.Model, Usage: resp.Usage, CostUSD: dollars,
		Reflection: l.machine.state == StateReflecting,
	})
	if used := l.history.contextTokens; used > 0 {
		l.warnContext(used)
	}
	return calls, nil
}

// countTokens adds the tokens of an answer with parts to the budget, which gets an estimate if the
// server reports none. It returns their price, which is nil if it is not known.
func (l *loop) countTokens(resp llm.Response, parts []llm.Part) (dollars *float64) {
	if used := resp.Usage.Total(); used > 0 {
		l.history.contextTokens = used
		l.history.counted = len(l.history.list())
		if len(parts) > 0 {
			l.history.counted++ // with this answer
		}
	}
	dollars = l.pay(l.request, resp)
	limits := l.limits()
	if resp.Usage.Total() == 0 && l.budget.guess() && (limits.MaxTokens > 0 || limits.MaxCost > 0) {
		l.send(event.Warning{
			Code: "usage_unknown",
			Message: "the model's server reports no token usage; limits use an estimate of four " +
				"characters per token",
		})
	}
	return dollars
}

// pay settles an answered request, and returns its price, which is nil if it is not known. Without
// reported tokens the budget gets an estimate.
func (l *loop) pay(req llm.Request, resp llm.Response) (dollars *float64) {
	used := resp.Usage
	if used.Total() == 0 {
		used.Input = approxTokens(req)
		used.Output = approxTokens(llm.Request{Messages: []llm.Message{resp.Message}}) + 1
	} else if price := l.profile.WithModel(req.Model).Price; price != nil {
		dollars = new(event.RoundMoney(price.Of(used)))
	}
	l.settle(cost{1, used.Total(), l.price().Of(used)}, []event.ModelUsage{{
		Model: req.Model, Answers: 1, Usage: resp.Usage, CostUSD: dollars,
	}})
	return dollars
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

// uniqueCalls returns copies of parts and their calls in which every tool call has an ID that no
// other call of the session has.
func (l *loop) uniqueCalls(parts []llm.Part) ([]llm.Part, []call) {
	out := make([]llm.Part, len(parts))
	var calls []call
	inAnswer := map[string]bool{}
	for i, p := range parts {
		out[i] = p
		if p.Kind != llm.PartToolCall || p.ToolCall == nil {
			continue
		}
		c := call{
			ToolCall: *p.ToolCall, arguments: p.ToolCall.Arguments, position: len(calls),
			original: p.ToolCall.ID, runID: l.in.RunID, modelCall: l.res.ModelCalls,
		}
		c.Arguments = redactArguments(l.scope.Redactor, c.Arguments)
		c.duplicate = c.ID != "" && inAnswer[c.ID]
		inAnswer[c.ID] = true
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%d_%d", len(l.history.list()), c.position)
		}
		for base, n := c.ID, 2; l.history.callIDs[c.ID]; n++ {
			c.ID = fmt.Sprintf("%s_%d", base, n)
		}
		l.history.callIDs[c.ID] = true
		unique := c.ToolCall
		out[i].ToolCall = &unique
		calls = append(calls, c)
	}
	return out, calls
}
