package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// reportTokens bounds a final answer, with the reasoning for it.
const reportTokens = 16_000

// errNoReport means that the model wrote no text when it was asked for the final answer.
var errNoReport = errors.New("the model answered without text")

// report lets the model write the answer of a run that ends as e without one, if that is
// configured. A failure is a warning, and leaves the end as it is. The error is one of the store.
func (l *loop) report(ctx context.Context, e ending) error {
	if !l.finalAnswer || l.failure() != nil || !l.lacksAnswer(e) {
		return nil
	}
	l.agents.stop() // what the report is about does not change any more
	l.next = l.settings()
	message := finalText(l.res.Limit, l.kind(KindSummary).Instructions)
	input := func() int64 { return l.nextTokens() + approxTokens(llm.Request{System: message}) }
	model := l.profile.WithModel(l.next.Model)
	most := cmp.Or(model.AnswerTokens, model.MaxOutputTokens)
	answer := min(cmp.Or(most, reportTokens), reportTokens)
	if room := model.ContextWindow - input(); room > 0 {
		answer = min(answer, room)
	}
	if err := l.take(ctx, input, answer, true); err != nil {
		l.warnReport(err)
		return nil
	}
	if l.most == 0 && most > 0 { // a model that is not known may accept less
		l.most = answer
	}
	l.step(SignalReport)
	if err := l.recordText(session.TurnSteering, message); err != nil {
		return err
	}
	l.send(event.SteeringInjected{Text: message})
	l.noCalls, l.partial = true, ""
	resp, err := l.stream(ctx)
	if err != nil {
		l.warnReport(err)
		return nil
	}
	if _, err := l.recordAnswer(withoutCalls(resp)); err != nil {
		return err
	}
	if l.silent {
		l.warnReport(errNoReport)
		return nil
	}
	l.res.Reported = true
	return nil
}

// lacksAnswer reports whether a run that ends as e has no answer that is for the user. A text that
// the output limit cut is one in part.
func (l *loop) lacksAnswer(e ending) bool {
	switch e.status {
	case StatusLimit:
		return l.res.Limit != "output_tokens"
	case StatusRepeatedFailures:
		return true
	case StatusCompleted, StatusTaskFailed, StatusVerifyFailed:
		return l.silent && (l.res.Exit == nil || strings.TrimSpace(l.res.Exit.Reason) == "")
	}
	return l.empty > 1
}

func (l *loop) warnReport(err error) {
	l.send(event.Warning{Code: "final_answer", Message: "no final answer: " + err.Error()})
}

// withoutCalls returns an answer without the calls of a server that ignores Request.NoToolCalls,
// and without the reasoning that belongs to them.
func withoutCalls(resp llm.Response) llm.Response {
	if len(resp.Message.ToolCalls()) > 0 {
		resp.Message.Parts = slices.DeleteFunc(slices.Clone(resp.Message.Parts), func(p llm.Part) bool {
			return p.Kind != llm.PartText
		})
	}
	return resp
}
