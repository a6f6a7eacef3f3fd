package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Pruning removes old outputs of tools, with the limits of opencode.
const (
	// protectedTurns is the number of the user's turns, from the end, whose outputs stay, and
	// protectedTokens that of the newest tokens of all outputs, which stay too.
	protectedTurns  = 2
	protectedTokens = 40_000
	// leastPruned is the least number of tokens for which outputs are removed: each time the provider
	// has to read the whole conversation again.
	leastPruned = 20_000
	// skill is the tool of hosts that loads instructions, which hold for the rest of the task.
	skill = "skill"
)

const (
	// summaryTokens bounds a summary, and keptTokens the newest turns that stay beside one, but for
	// the last round.
	summaryTokens = 8_000
	keptTokens    = 20_000
	// answersBetween is the least number of answers between two summaries.
	answersBetween = 3
	// keptWords bounds the user's words that stay, and keptNames each list of files, in characters.
	keptWords = 24_000
	keptNames = 8_000
	// leastSummarized is the least number of tokens that a summary replaces before the provider has
	// refused a request.
	leastSummarized = 4_000
	// summarizedResult is the length of a result in the request for a summary, in characters.
	summarizedResult = 2_000
)

// errOverflow means that a conversation cannot be made as short as the model's context.
var errOverflow = fmt.Errorf("the conversation is longer than the model's context, and %w",
	ErrNotShorter)

// room returns the tokens of the context that a request may have; 0 if they are not known.
func (l *loop) room() int64 {
	model := l.profile.WithModel(l.settings().Model)
	answer := model.AnswerTokens
	if answer == 0 {
		answer = model.MaxOutputTokens
	}
	return model.ContextWindow - min(answer, model.ContextWindow/4)
}

// fitContext lets the context manager shorten the conversation before the next request.
func (l *loop) fitContext(ctx context.Context) (ending, bool, error) {
	l.next = l.settings()
	return l.shorten(ctx, l.room(), false)
}

// shorten carries out what the context manager decides: it removes outputs, and asks again, or
// replaces turns.
func (l *loop) shorten(ctx context.Context, limit int64, refused bool) (ending, bool, error) {
	for range 2 {
		c := Conversation{
			SessionID: l.sessionID, Turns: slices.Clone(l.history.list()),
			Pruned: maps.Clone(l.history.pruned), Tokens: l.nextTokens(), Limit: limit, Refused: refused,
		}
		s, err := l.manager.Shorten(ctx, c)
		if err == nil {
			err = s.validate(c)
		}
		switch {
		case ctx.Err() != nil:
			return stopped(ctx), true, nil
		case err != nil:
			return internalError(fmt.Errorf("shorten the conversation: %w", err)), true, nil
		}
		if len(s.Prune) > 0 {
			if err := l.prune(s.Prune, c.Tokens); err != nil {
				return ending{}, false, err
			}
		}
		switch {
		case s.Replace > 0 && s.Text == "":
			return l.summarizeOld(ctx, len(c.Turns)-s.Replace)
		case s.Replace > 0:
			return l.compact(ctx, len(c.Turns)-s.Replace, s.Text)
		case len(s.Prune) == 0:
			return ending{}, false, nil
		}
	}
	return ending{}, false, nil
}

// summarizeOld replaces all turns but the last ones, keep, by a summary, unless the last summary
// was just before: then a summary is no help.
func (l *loop) summarizeOld(ctx context.Context, keep int) (ending, bool, error) {
	if l.summaries > 0 && l.answersSince < answersBetween {
		return overflow(), true, nil
	}
	l.summaries++
	l.answersSince = 0
	return l.compact(ctx, keep, "")
}

// overflow is the end of a run whose conversation is too long.
func overflow() ending {
	return ending{SignalError, StatusContextOverflow, fmt.Errorf("agent: %w", errOverflow)}
}

// prune removes the outputs of calls. Before is the estimate of the next request.
func (l *loop) prune(ids []string, before int64) error {
	if err := l.store.Append(session.TypePruned, session.Pruned{CallIDs: ids}); err != nil {
		return err
	}
	l.history.prune(ids)
	l.send(event.ContextUpdated{
		Action: event.ContextPruned, Before: before, After: l.nextTokens(), Outputs: len(ids),
	})
	return nil
}

// prunable returns the calls whose outputs can be removed, and the tokens of these.
func (c Conversation) prunable() (ids []string, tokens int64) {
	users, protected := 0, int64(0)
	for _, t := range slices.Backward(c.Turns) {
		if t.Kind == session.TurnUser {
			users++
		}
		for _, r := range slices.Backward(t.Results) {
			if r.IsError || r.Name == planExit || r.Name == skill || c.Pruned[r.CallID] {
				continue
			}
			n := resultTokens(r)
			if protected += n; protected > protectedTokens && users >= protectedTurns {
				ids, tokens = append(ids, r.CallID), tokens+n
			}
		}
	}
	slices.Reverse(ids)
	return ids, tokens
}

func resultTokens(r llm.ToolResult) int64 {
	part := llm.Part{Kind: llm.PartToolResult, ToolResult: &r}
	return approxTokens(llm.Request{Messages: []llm.Message{{Parts: []llm.Part{part}}}})
}

// prune removes outputs from the messages of the history.
func (h *history) prune(ids []string) {
	for _, id := range ids {
		h.pruned[id] = true
	}
	h.contextTokens = 0
}

// compact replaces all turns but the last ones, keep, by a text; an empty one stands for a summary
// of the model.
func (l *loop) compact(ctx context.Context, keep int, text string) (ending, bool, error) {
	list := l.history.list()
	old, kept := list[:len(list)-keep], list[len(list)-keep:]
	c := session.Compacted{RunID: l.in.RunID, Summary: text, Keep: keep}
	if text == "" {
		resp, e, over := l.summarize(ctx, old)
		if over {
			return e, true, nil
		}
		c.Model, c.Usage, c.CostUSD = l.next.Model, resp.Usage, l.pay(l.request, resp)
		if resp.Finish != llm.FinishContentFilter {
			c.Summary = strings.TrimSpace(resp.Message.Text())
		}
	}
	l.gather(&c, old)
	c.Turn = session.Turn{
		Kind: session.TurnSteering, Time: l.clock.Now(), Parts: []llm.Part{llm.Text(compactedText(c))},
	}
	before, after := l.estimate(list), l.estimate(slices.Concat([]session.Turn{c.Turn}, kept))
	room := l.room()
	if c.Summary == "" || text == "" && (after > before*3/4 || room > 0 && after > room) {
		return overflow(), true, nil
	}
	if err := l.store.Append(session.TypeCompacted, c); err != nil {
		return ending{}, false, err
	}
	l.history.compact(c)
	l.told = nil
	l.mode.forget()
	l.planner.forget()
	l.send(event.ContextUpdated{
		Action: event.ContextCompacted, Before: before, After: after, Usage: c.Usage, CostUSD: c.CostUSD,
	})
	return ending{}, false, nil
}

// estimate returns the tokens of a request with these turns.
func (l *loop) estimate(turns []session.Turn) int64 {
	req, _ := l.buildRequest()
	req.Messages = session.Messages(turns, l.history.pruned)
	return approxTokens(req)
}

// summarize asks the model for a summary of turns. If even that is too long for the context, it
// asks once more with half of the text.
func (l *loop) summarize(
	ctx context.Context, turns []session.Turn,
) (resp llm.Response, e ending, over bool) {
	if m := l.kind(KindCompaction).Model; m != "" {
		l.next.Model = m
	}
	text := transcript(turns, l.history.pruned)
	length := len(text)
	if room := l.room(); room > 0 {
		length = min(length, int(room-summaryTokens)*3) // of 4 characters a token
	}
	for try := 0; ; try++ {
		req := l.summaryRequest(shorten.Middle(text, max(0, length)))
		input := func() int64 { return approxTokens(req) }
		if e, over := l.reserve(ctx, input, summaryTokens); over {
			return resp, e, true
		}
		if l.most > 0 {
			req.MaxOutputTokens = int(min(summaryTokens, l.most))
		}
		l.request, l.sent = req, true
		resp, err := l.ask(ctx, req)
		if err == nil {
			return resp, e, false
		}
		e := l.modelFailed(ctx, err)
		l.settleUnanswered()
		switch {
		case e.status != StatusContextOverflow:
			return resp, e, true
		case try > 0:
			return resp, overflow(), true
		}
		length /= 2
	}
}

// ask sends a request whose answer nobody sees.
func (l *loop) ask(ctx context.Context, req llm.Request) (llm.Response, error) {
	if err := l.storeRequest(req, 0); err != nil {
		return llm.Response{}, err
	}
	a := l.aggregate()
	for d, err := range l.client.Stream(ctx, req) {
		if err != nil {
			return llm.Response{}, err
		}
		a.Add(d)
		if d.Kind == llm.DeltaRetry {
			l.send(l.storeRetry(*d.Retry, 0))
		}
	}
	return a.Response()
}

// lastRounds returns the number of turns at the end that make whole rounds of at most that many
// tokens, at least the last round, which the model has not seen.
func lastRounds(list []session.Turn, most int64) (keep int) {
	for n := 1; n <= len(list); n++ {
		rest := list[len(list)-n:]
		if keep > 0 && approxTokens(llm.Request{Messages: session.Messages(rest, nil)}) > most {
			break
		}
		if startsRound(rest[0]) {
			keep = n
		}
	}
	return keep
}

// summaryRequest asks for a summary of a conversation, which it has as a text: messages with calls
// of tools would need these tools.
func (l *loop) summaryRequest(conversation string) llm.Request {
	text := llm.Text(summarizeText(conversation))
	return llm.Request{
		Model: l.next.Model, System: l.kind(KindCompaction).Instructions, MaxOutputTokens: summaryTokens,
		Messages:  []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{text}}},
		Options:   l.profile.WithModel(l.next.Model).Options,
		SessionID: l.sessionID, RunID: l.in.RunID,
	}
}

// transcript writes turns as JSON, one object a line, in which long results and arguments are cut.
// So no text of a result looks like the words of somebody else.
func transcript(turns []session.Turn, pruned map[string]bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	write := func(pairs ...string) {
		entry := make(map[string]string, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			entry[pairs[i]] = pairs[i+1]
		}
		_ = enc.Encode(entry) // texts can always be encoded
	}
	for _, t := range turns {
		switch t.Kind {
		case session.TurnUser, session.TurnSteering:
			write("user", t.Text())
		case session.TurnAssistant:
			if text := t.Text(); text != "" {
				write("agent", text)
			}
			for _, p := range t.Parts {
				if p.ToolCall != nil {
					write("call", p.ToolCall.Name, "id", p.ToolCall.ID, "arguments",
						shorten.Middle(p.ToolCall.Arguments, summarizedResult))
				}
			}
		case session.TurnToolResults:
			for _, r := range t.Results {
				text, kind := shorten.Middle(r.Text(), summarizedResult), "result"
				if pruned[r.CallID] {
					text = session.PrunedText
				}
				if r.IsError {
					kind = "error"
				}
				write("tool", r.Name, "id", r.CallID, kind, text)
			}
		}
	}
	return b.String()
}

// gather adds to c what a summary must not lose: the words of the user, the plan, the files that
// were changed and read, the long outputs that the session keeps, of the turns that it stands for
// and of the summary before, and the open failures.
func (l *loop) gather(c *session.Compacted, turns []session.Turn) {
	old := l.history.compacted
	c.Words, c.Changed, c.Read = slices.Clone(old.Words), slices.Clone(old.Changed),
		slices.Clone(old.Read)
	c.Plan, c.Outputs = old.Plan, slices.Clone(old.Outputs)
	for _, f := range l.history.failures.Open() {
		text := strings.TrimSpace(f.Message + "\n" + f.Output)
		c.Failures = append(c.Failures, cmp.Or(f.Tool, f.Kind)+": "+shorten.Middle(text, 300))
	}
	failed, stored := map[string]bool{}, map[string]bool{}
	for _, t := range turns {
		for _, r := range t.Results {
			failed[r.CallID] = r.IsError
			stored[r.CallID] = strings.Contains(r.Text(), tool.OutputScheme+r.CallID)
			if r.Name == planExit && !r.IsError {
				c.Plan = r.Text()
			}
		}
	}
	for _, t := range turns {
		if t.Kind == session.TurnUser {
			c.Words = append(c.Words, t.Text())
		}
		for _, p := range t.Parts {
			if p.ToolCall == nil || t.Kind != session.TurnAssistant {
				continue
			}
			if stored[p.ToolCall.ID] {
				c.Outputs = addNames(c.Outputs, []string{outputName(*p.ToolCall)})
			}
			if failed[p.ToolCall.ID] {
				continue
			}
			changed, read := l.filesOf(*p.ToolCall)
			c.Changed, c.Read = addNames(c.Changed, changed), addNames(c.Read, read)
		}
	}
	const lastFailures = 5
	c.Failures = c.Failures[max(0, len(c.Failures)-lastFailures):]
	words := keptWords
	if room := l.room(); room > 0 {
		words = min(words, int(room)/2)
	}
	c.Words = boundWords(c.Words, words)
}

// outputName names the output of a call that the session keeps.
func outputName(c llm.ToolCall) string {
	return tool.OutputScheme + c.ID + ": " + c.Name + " " + shorten.Middle(c.Arguments, 200)
}

// filesOf returns the files that a call changes and reads.
func (l *loop) filesOf(c llm.ToolCall) (changed, read []string) {
	t, ok := l.registry.Get(c.Name)
	if !ok || t.Subjects == nil || !json.Valid([]byte(c.Arguments)) {
		return nil, nil
	}
	for _, r := range t.Requests(json.RawMessage(c.Arguments)) {
		switch r.Class {
		case policy.ClassWrite:
			changed = append(changed, r.Subject)
		case policy.ClassRead:
			read = append(read, r.Subject)
		}
	}
	return changed, read
}

// addNames adds names to a list, which forgets the oldest ones when it gets too long.
func addNames(list, more []string) []string {
	for _, name := range more {
		list = append(slices.DeleteFunc(list, func(have string) bool { return have == name }), name)
	}
	for total := len(strings.Join(list, "\n")); total > keptNames && len(list) > 1; {
		total -= len(list[0]) + 1
		list = list[1:]
	}
	return list
}

// boundWords returns about most characters of the user's texts: of the first, which is the task,
// and of the newest ones.
func boundWords(list []string, most int) []string {
	if len(list) == 0 {
		return nil
	}
	first := shorten.Middle(list[0], most/2)
	var newest []string
	for left := most - len(first); len(list) > 1+len(newest) && left > 0; {
		text := shorten.Middle(list[len(list)-1-len(newest)], left)
		newest = append(newest, text)
		left -= len(text)
	}
	slices.Reverse(newest)
	return append([]string{first}, newest...)
}

// compact replaces all turns but the last c.Keep by c.Turn.
func (h *history) compact(c session.Compacted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = slices.Concat([]session.Turn{c.Turn}, h.turns[len(h.turns)-c.Keep:])
	h.contextTokens, h.counted, h.compacted = 0, 0, c
}

// overflowed follows an answer of the provider that the context is too long: it shortens the
// conversation once, for one more try.
func (l *loop) overflowed(ctx context.Context, e ending) (ending, bool, error) {
	if e.status != StatusContextOverflow || l.retried {
		return e, true, nil
	}
	l.retried = true
	l.settleUnanswered()
	before := l.nextTokens()
	end, over, err := l.shorten(ctx, before/2, true) // the provider counts more than the estimate
	switch {
	case over || err != nil:
		return end, over, err
	case l.nextTokens() >= before:
		return e, true, nil
	}
	l.step(SignalContinue)
	return ending{}, false, nil
}
