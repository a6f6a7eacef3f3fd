package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// limitShare is the part of a limit from which on the model knows of it.
const limitShare = 0.8

// reserveNext reserves the next request.
func (l *loop) reserveNext(ctx context.Context) (ending, bool) {
	l.next = l.settings()
	model := l.profile.WithModel(l.next.Model)
	answer := cmp.Or(model.AnswerTokens, model.MaxOutputTokens, unknownAnswer)
	return l.reserve(ctx, l.nextTokens, answer)
}

// reserve takes a request from the budget, with the tokens that input returns and at most answer,
// or ends the run if it has no room left.
func (l *loop) reserve(
	ctx context.Context, input func() int64, answer int64,
) (ending, bool) {
	err := l.take(ctx, input, answer, false)
	var over *limitError
	switch {
	case errors.As(err, &over):
		return l.limitReached(over.name, over.value), true
	case errors.Is(err, ErrConfig):
		return internalError(err), true
	case err != nil:
		return stopped(ctx), true
	}
	return ending{}, false
}

// take is reserve with an error: a *limitError, that of ctx, or one that wraps ErrConfig. An extra
// request is beyond MaxTurns.
func (l *loop) take(
	ctx context.Context, input func() int64, answer int64, extra bool,
) (err error) {
	model := l.profile.WithModel(l.next.Model)
	price := cmp.Or(model.Price, &profile.Price{})
	tokens, dollars := l.budget.bounds()
	if dollars && model.Price == nil {
		return fmt.Errorf("%w: the price of the model %q is not known, and the limit of money needs it",
			ErrConfig, l.next.Model)
	}
	l.reserved, l.most, err = l.budget.reserve(ctx, input, answer, *price, extra)
	l.sent = false
	if !tokens && !dollars {
		l.most = 0 // no limit but the profile's
	}
	return err
}

// settle ends the reservation of the current request, which took c, and whose answer used so much;
// nothing without an answer.
func (l *loop) settle(c cost, used []event.ModelUsage) {
	l.budget.settle(l.reserved, c, used)
	l.reserved, l.sent = cost{}, false
}

// settleUnanswered is settle for a request without an answer, which counts with its input if it was
// sent.
func (l *loop) settleUnanswered() {
	c := cost{}
	if l.sent {
		in := approxTokens(l.request)
		c = cost{1, in, l.price().Most(in, 0)}
	}
	l.settle(c, nil)
}

// price returns the price of the current request; zero if it is not known.
func (l *loop) price() profile.Price {
	return *cmp.Or(l.profile.WithModel(l.request.Model).Price, &profile.Price{})
}

// nextTokens estimates the tokens of the next request.
func (l *loop) nextTokens() int64 {
	queued := approxTokens(llm.Request{System: l.steering.text()})
	if l.history.contextTokens == 0 {
		req, _ := l.buildRequest()
		return queued + approxTokens(req)
	}
	list := l.history.list()
	later := session.Messages(list[min(l.history.counted, len(list)):], l.history.pruned)
	return queued + l.history.contextTokens + approxTokens(llm.Request{Messages: later})
}

// answerTokens is the limit of the next answer; zero leaves it to the provider.
func (l *loop) answerTokens() int {
	if l.most > 0 {
		return int(l.most)
	}
	return int(l.model.AnswerTokens)
}

// limitNotes returns a text for each limit of which limitShare is used, once a run.
func (l *loop) limitNotes() (texts []string) {
	limits := l.limits()
	list := append(
		l.budget.shares(),
		share{"tool_rounds", float64(l.rounds), float64(limits.MaxToolRounds), 0},
		share{"tool_calls", float64(len(l.res.ToolCalls)), float64(limits.MaxToolCalls), 0},
	)
	for _, s := range list {
		key := fmt.Sprint(s.limit, s.above)
		if s.whole <= 0 || s.used < limitShare*s.whole || l.told[key] {
			continue
		}
		if l.told == nil {
			l.told = map[string]bool{}
		}
		l.told[key] = true
		texts = append(texts, limitText(s))
	}
	return texts
}

// limitText tells a model how much of a limit is used.
func limitText(s share) string {
	var of string
	switch s.limit {
	case "cost":
		of = fmt.Sprintf("%.4g of %.4g US dollars", s.used, s.whole)
	case "time":
		of = fmt.Sprintf("%s of %s", time.Duration(s.used).Round(time.Second),
			time.Duration(s.whole).Round(time.Second))
	case "turns":
		of = fmt.Sprintf("%.0f of %.0f requests to the model", s.used, s.whole)
	case "tool_rounds":
		of = fmt.Sprintf("%.0f of %.0f rounds of tool calls", s.used, s.whole)
	case "tool_calls":
		of = fmt.Sprintf("%.0f of %.0f tool calls", s.used, s.whole)
	default:
		of = fmt.Sprintf("%.0f of %.0f %s", s.used, s.whole, s.limit)
	}
	return "This run has used " + of + ", and ends at that limit. Do the most important part of the " +
		"rest now, and report what is missing."
}
