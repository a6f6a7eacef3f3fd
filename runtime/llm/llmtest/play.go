package llmtest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
)

// Play returns a Brain that answers with the turns of a script. A request that does not meet the
// conditions of its turn is a violation. A script with a condition on is_error is rejected: most
// wires do not carry it.
func Play(s *replay.Script) (Brain, error) {
	for _, turn := range s.Turns {
		results := turn.Expect.Results
		if r := turn.Expect.Result; r != nil {
			results = append([]replay.Result{*r}, results...)
		}
		for _, r := range results {
			if r.IsError != nil {
				return nil, fmt.Errorf("%s:%d: is_error cannot be expected here, for requests over HTTP do "+
					"not tell it", s.Name, turn.Line)
			}
		}
	}
	player := replay.NewPlayer(s)
	return func(req *Request) Reply {
		turn, err := player.Next(req.Request)
		if err != nil {
			var e *llm.Error
			if errors.As(err, &e) {
				return Reply{Violation: e.Message}
			}
			return Reply{Violation: err.Error()}
		}
		return replyOf(turn, s.Model)
	}, nil
}

func replyOf(turn replay.Turn, model string) Reply {
	r := Reply{
		Reasoning: turn.Reasoning, Text: turn.Text, Usage: turn.Usage, Finish: turn.Finish, Model: model,
		Fault: Fault{Delay: turn.Delay},
	}
	for _, c := range turn.Calls {
		r.Calls = append(r.Calls, Call{Name: c.Name, Arguments: c.Arguments, ID: c.ID, NoID: c.ID == ""})
	}
	if turn.Error != nil {
		r.Fault = faultOf(turn.Error, turn.Delay)
	}
	return r
}

// faultOf returns the fault that clients report as e.
func faultOf(e *llm.Error, delay time.Duration) Fault {
	f := Fault{Delay: delay, Status: e.Status, Code: e.Code, Message: e.Message, Type: "error"}
	status, code := http.StatusBadRequest, ""
	switch e.Kind {
	case llm.KindNetwork:
		f.Reset = true
	case llm.KindStream:
		f.Cut = AtEnd
		f.Status = 0
		return f
	case llm.KindTimeout:
		status = http.StatusRequestTimeout
	case llm.KindRateLimit:
		status, code = http.StatusTooManyRequests, "rate_limit_exceeded"
	case llm.KindOverloaded:
		status = 529
	case llm.KindServer:
		status = http.StatusInternalServerError
	case llm.KindAuth:
		status = http.StatusUnauthorized
	case llm.KindQuota:
		status, code = http.StatusTooManyRequests, "insufficient_quota"
	case llm.KindNotFound:
		status = http.StatusNotFound
	case llm.KindContextLength:
		code = "context_length_exceeded"
	case llm.KindContentFilter:
		code = "content_filter"
	}
	if f.Status == 0 {
		f.Status = status
	}
	if f.Code == "" {
		f.Code = code
	}
	if e.HasRetryAfter {
		f.Header = http.Header{"Retry-After-Ms": {strconv.FormatInt(e.RetryAfter.Milliseconds(), 10)}}
	}
	return f
}
