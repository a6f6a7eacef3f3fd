package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// wire is a way in which models are asked, with what is peculiar to it.
type wire struct {
	name string
	// client makes a client for srv that waits for each byte as long as idle.
	client  func(srv *llmtest.Server, idle time.Duration) (llm.Client, error)
	profile profile.Profile
	// model and url make the program ask in this way.
	model string
	url   func(*llmtest.Server) string
	// noIDs says that models give their calls no ids unless they are told to.
	noIDs bool
	// objects says that the service keeps to itself a call whose arguments are no object, and the
	// answer with it.
	objects bool
	// busy is the kind of a 503 without a word in it.
	busy llm.ErrorKind
	// broken are faults in streams that only this service has; after each the request is sent again.
	broken map[string]llmtest.Fault
	// waits are answers that ask for a wait in this service's own way.
	waits map[string]wireWait
	// refusals are errors as this service words them.
	refusals map[string]refusal
}

type wireWait struct {
	fault llmtest.Fault
	wait  time.Duration
}

// refusal is an error after which the request is not sent again.
type refusal struct {
	fault  llmtest.Fault
	kind   llm.ErrorKind
	status agent.Status
	// text is part of what the user is told.
	text string
}

// refused is an answer in place of a stream.
func refused(status int, body string) llmtest.Fault {
	return llmtest.Fault{
		Status: status, Body: body,
		Header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}},
	}
}

func wires() []wire {
	return []wire{
		openaiWire(openai.Responses, "openai/gpt-5.2"), openaiWire(openai.Chat, "openai-compatible/some"),
		messagesWire(), generateWire(),
	}
}

func openaiWire(api openai.API, model string) wire {
	w := wire{
		name: string(api), model: model, url: (*llmtest.Server).URL, profile: profile.OpenAI("gpt-5.2"),
		busy: llm.KindServer,
		client: func(srv *llmtest.Server, idle time.Duration) (llm.Client, error) {
			return openai.New(openai.Config{
				BaseURL: srv.URL(), APIKey: srv.Key(), HTTPClient: srv.Client(), API: api, IdleTimeout: idle,
			})
		},
		broken: map[string]llmtest.Fault{
			"rate limit in a token": {
				Fail: llmtest.AtText, Code: "rate_limit_exceeded", Message: "Rate limit reached",
			},
		},
		refusals: map[string]refusal{
			"401, key": {
				refused(401, `{"error":{"message":"Incorrect API key provided: sk-a***b.",`+
					`"type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`),
				llm.KindAuth, agent.StatusModelError, "Incorrect API key",
			},
			"400, length": {
				refused(400, `{"error":{"message":"Your input exceeds the context window of this model.",`+
					`"type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`),
				llm.KindContextLength, agent.StatusContextOverflow, "exceeds the context window",
			},
			"429, money": {
				refused(429, `{"error":{"message":"You exceeded your current quota.",`+
					`"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`),
				llm.KindQuota, agent.StatusModelError, "exceeded your current quota",
			},
			"404, model": {
				refused(404, `{"error":{"message":"The model does not exist.","type":"invalid_request_error",`+
					`"param":null,"code":"model_not_found"}}`),
				llm.KindNotFound, agent.StatusModelError, "does not exist",
			},
		},
	}
	return w
}

func messagesWire() wire {
	says := func(status int, kind, message string) llmtest.Fault {
		return refused(status, fmt.Sprintf(
			`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, kind, message))
	}
	return wire{
		name: llmtest.Messages, model: "anthropic/claude-opus-5-5", url: (*llmtest.Server).Root,
		profile: profile.Anthropic("claude-opus-5-5"), busy: llm.KindServer,
		client: func(srv *llmtest.Server, idle time.Duration) (llm.Client, error) {
			return anthropic.New(anthropic.Config{
				BaseURL: srv.Root(), APIKey: srv.Key(), HTTPClient: srv.Client(), IdleTimeout: idle,
			})
		},
		broken: map[string]llmtest.Fault{
			"overloaded in a token": {Fail: llmtest.AtText, Type: "overloaded_error", Message: "Overloaded"},
			"overloaded in arguments": {
				Fail: llmtest.AtArguments, Type: "overloaded_error", Message: "Overloaded",
			},
			"api error at the end": {
				Fail: llmtest.AtEnd, Type: "api_error", Message: "Internal server error",
			},
		},
		refusals: map[string]refusal{
			"401, key": {
				says(401, "authentication_error", "invalid x-api-key"), llm.KindAuth,
				agent.StatusModelError, "invalid x-api-key",
			},
			"403": {
				says(403, "permission_error", "Your API key may not use this."), llm.KindAuth,
				agent.StatusModelError, "may not use",
			},
			"400, length": {
				says(400, "invalid_request_error",
					"prompt is too long: 215000 tokens > 200000 maximum"), llm.KindContextLength,
				agent.StatusContextOverflow, "215000 tokens",
			},
			"413": {
				says(413, "request_too_large", "Request exceeds the maximum size"),
				llm.KindContextLength, agent.StatusContextOverflow, "maximum size",
			},
			"400, money": {
				says(400, "invalid_request_error",
					"Your credit balance is too low to access the Anthropic API."), llm.KindQuota,
				agent.StatusModelError, "credit balance",
			},
			"402, billing": {
				says(402, "billing_error", "There is an issue with your billing."),
				llm.KindQuota, agent.StatusModelError, "billing",
			},
			"404, model": {
				says(404, "not_found_error", "model: claude-none"), llm.KindNotFound,
				agent.StatusModelError, "claude-none",
			},
		},
	}
}

func generateWire() wire {
	says := func(status int, name, message, details string) llmtest.Fault {
		return refused(status, fmt.Sprintf(
			`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, status, message, name, details))
	}
	const (
		rpc    = `{"@type":"type.googleapis.com/google.rpc.`
		key    = rpc + `ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`
		minute = rpc + `QuotaFailure",` +
			`"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}`
		day = rpc + `QuotaFailure",` +
			`"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}`
	)
	retryIn := func(d string) string { return rpc + `RetryInfo","retryDelay":"` + d + `"}` }
	return wire{
		name: llmtest.Generate, model: "gemini/gemini-3-pro-preview", url: (*llmtest.Server).Root,
		profile: profile.Gemini("gemini-3-pro-preview"), noIDs: true, objects: true,
		// UNAVAILABLE is what the service says when it is overloaded.
		busy: llm.KindOverloaded,
		client: func(srv *llmtest.Server, idle time.Duration) (llm.Client, error) {
			return gemini.New(gemini.Config{
				BaseURL: srv.Root(), APIKey: srv.Key(), HTTPClient: srv.Client(), IdleTimeout: idle,
			})
		},
		broken: map[string]llmtest.Fault{
			"unavailable in a token": {
				Fail: llmtest.AtText, Code: "UNAVAILABLE", Message: "The model is overloaded.",
			},
			"unavailable in arguments": {
				Fail: llmtest.AtArguments, Code: "UNAVAILABLE", Message: "The model is overloaded.",
			},
			"exhausted at the end": {
				Fail: llmtest.AtEnd, Code: "RESOURCE_EXHAUSTED", Message: "Resource has been exhausted.",
			},
		},
		waits: map[string]wireWait{
			"429, RetryInfo": {says(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.",
				minute+","+retryIn("7.5s")), 7500 * time.Millisecond},
			"503, RetryInfo": {
				says(503, "UNAVAILABLE", "The model is overloaded.", retryIn("2s")), 2 * time.Second,
			},
		},
		refusals: map[string]refusal{
			// A wrong key is no 401 here.
			"400, key": {says(400, "INVALID_ARGUMENT",
				"API key not valid. Please pass a valid API key.",
				key), llm.KindAuth, agent.StatusModelError, "API key not valid"},
			"400, key alone": {says(400, "INVALID_ARGUMENT",
				"API key not valid. Please pass a valid API key.",
				""), llm.KindAuth, agent.StatusModelError, "API key not valid"},
			"403": {says(403, "PERMISSION_DENIED", "Your API key was reported as leaked.",
				""), llm.KindAuth, agent.StatusModelError, "leaked"},
			"400, length": {says(400, "INVALID_ARGUMENT",
				"The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
				""), llm.KindContextLength, agent.StatusContextOverflow, "1048577"},
			"429, quota of days": {says(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.",
				day+","+retryIn("7s")), llm.KindQuota, agent.StatusModelError, "exceeded your current quota"},
			"429, RetryInfo": {says(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.",
				retryIn("301s")), llm.KindRateLimit, agent.StatusModelError, "--max-retry-wait"},
			"404, model": {
				says(404, "NOT_FOUND", "models/gemini-none is not found", ""),
				llm.KindNotFound, agent.StatusModelError, "gemini-none",
			},
			"400, place": {
				says(400, "FAILED_PRECONDITION", "User location is not supported.", ""),
				llm.KindInvalid, agent.StatusModelError, "location",
			},
		},
	}
}

// onFirstWire runs a test of something that no wire can change.
func onFirstWire(t *testing.T, prove func(*testing.T, wire)) {
	t.Helper()
	t.Parallel()
	prove(t, wires()[0])
}

// onWires runs a test on all wires.
func onWires(t *testing.T, prove func(*testing.T, wire)) {
	t.Helper()
	for _, w := range wires() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			prove(t, w)
		})
	}
}

// brain makes the calls of the answers of b such as a model on w makes them.
func (w wire) brain(b llmtest.Brain) llmtest.Brain {
	if !w.noIDs || b == nil {
		return b
	}
	return func(r *llmtest.Request) llmtest.Reply {
		reply := b(r)
		reply.Calls = slices.Clone(reply.Calls)
		for i := range reply.Calls {
			reply.Calls[i].NoID = reply.Calls[i].ID == ""
		}
		return reply
	}
}

// passes says whether the service passes on a call of its model.
func (w wire) passes(c llmtest.Call) bool {
	return !w.objects || c.Arguments == "" || strings.HasPrefix(c.Arguments, "{") &&
		json.Valid([]byte(c.Arguments))
}

// bad is a call with arguments that are wrong, and part of what its result says. They are malformed
// if the service passes on such.
func (w wire) bad(tool string) (llmtest.Call, string) {
	c := llmtest.Call{Name: tool, Arguments: `{"command": "echo never >> f"`}
	if w.passes(c) {
		return c, "not valid JSON"
	}
	return use(tool, map[string]any{"command": 5}), "command"
}

// wireSession is newSession on a wire. At the end its journal must be whole and closed.
func wireSession(
	t *testing.T, w wire, brain llmtest.Brain, change ...func(*agent.Config),
) *session {
	t.Helper()
	srv := llmtest.NewServer(t, w.brain(brain))
	client, err := w.client(srv, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	onWire := func(c *agent.Config) { c.Client, c.Profile = client, w.profile }
	s := newSession(t, nil, append([]func(*agent.Config){onWire}, change...)...)
	s.server.Close() // nobody asks it
	s.server = srv
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range srv.Requests() {
				t.Logf("request %d: %d messages, %d bytes", r.Number, len(r.Messages), len(r.Body))
			}
		}
	})
	t.Cleanup(func() {
		_ = s.Close() // a failed run has closed it
		readJournal(t, s.Dir())
	})
	return s
}

// modelFlags make the program ask a server on a wire.
func modelFlags(srv *llmtest.Server, w wire) []string {
	return []string{"--model=" + w.model, "--base-url=" + w.url(srv)}
}
