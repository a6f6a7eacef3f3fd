package agent

import (
	"context"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// titleTask bounds the task in the request for a title, in bytes, and titleTokens its answer, with
	// reasoning.
	titleTask   = 4000
	titleTokens = 2000
	// titleTime bounds the wait for it.
	titleTime = 20 * time.Second
	// maxTitle bounds a title, in characters.
	maxTitle = 80
)

// giveTitle has the model write the title of the session at the end of its first run, if that is
// wanted and the limits have room for it. Without one the session has none. The error is one of the
// store.
func (l *loop) giveTitle(ctx context.Context, e ending) error {
	if !l.titles || l.agentID != "" || l.history.titled || ctx.Err() != nil ||
		e.status == StatusModelError || e.status == StatusInternalError {
		return nil
	}
	l.history.titled = true
	ctx, cancel := context.WithTimeout(ctx, titleTime)
	defer cancel()
	k := l.kind(KindTitle)
	l.next = l.settings()
	if k.Model != "" {
		l.next.Model = k.Model
	}
	task := llm.Text(shorten.Middle(l.firstTask(), titleTask))
	req := llm.Request{
		Model: l.next.Model, System: k.Instructions, MaxOutputTokens: titleTokens,
		Messages:  []llm.Message{{Role: llm.RoleUser, Parts: []llm.Part{task}}},
		Options:   l.profile.WithModel(l.next.Model).Options,
		SessionID: l.sessionID, RunID: l.in.RunID,
	}
	input := func() int64 { return approxTokens(req) }
	if err := l.take(ctx, input, titleTokens, true); err != nil {
		return nil // a title is worth no error
	}
	l.request, l.sent = req, true
	resp, err := l.ask(ctx, req)
	if err != nil {
		return nil
	}
	l.pay(req, resp)
	line, _, _ := strings.Cut(strings.TrimSpace(resp.Message.Text()), "\n")
	title := []rune(strings.Trim(strings.Join(strings.Fields(tool.Sanitize(line)), " "), `"'`))
	if len(title) == 0 {
		return nil
	}
	text := l.scope.Redactor.Text(string(title[:min(len(title), maxTitle)]))
	if err := l.store.Append(session.TypeTitle, session.Title{Title: text}); err != nil {
		return err
	}
	l.history.setTitle(text)
	return nil
}

// firstTask returns the first text of the user.
func (l *loop) firstTask() string {
	if words := l.history.compacted.Words; len(words) > 0 {
		return words[0]
	}
	for _, t := range l.history.list() {
		if t.Kind == session.TurnUser {
			return t.Text()
		}
	}
	return ""
}
