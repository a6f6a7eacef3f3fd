package integration_test

import (
	"encoding/json"
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

// wire is an interface of a provider, with its peculiarities.
type wire struct {
	name string
	// client makes a client for srv that waits for each byte as long as idle, or the default.
	client  func(srv *llmtest.Server, idle time.Duration) (llm.Client, error)
	profile profile.Profile
	// model and url make the program use this interface.
	model string
	url   func(*llmtest.Server) string
	// noIDs is set where calls have no IDs by default.
	noIDs bool
	// objects is set where the service does not send an answer if the arguments of a call are no
	// object.
	objects bool
	// busy is the kind of a 503 without a message.
	busy llm.ErrorKind
	// tooLong refuses a request that is longer than the context of the model.
	tooLong llmtest.Fault
	// broken are faults in streams that only this service has; after each the request is sent again.
	broken map[string]llmtest.Fault
}

func wires() []wire {
	return []wire{
		openaiWire(openai.Responses, "openai/gpt-5.2"), openaiWire(openai.Chat, "openai-compatible/some"),
		messagesWire(), generateWire(),
	}
}

func openaiWire(api openai.API, model string) wire {
	return wire{
		name: string(api), model: model, url: (*llmtest.Server).URL, profile: profile.OpenAI("gpt-5.2"),
		busy: llm.KindServer,
		tooLong: llmtest.Fault{
			Status: 400, Code: "context_length_exceeded", Type: "invalid_request_error",
			Message: "Your input exceeds the limit of this model. Please adjust your input and try again.",
		},
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
	}
}

func messagesWire() wire {
	return wire{
		name: llmtest.Messages, model: "anthropic/claude-opus-5-5", url: (*llmtest.Server).Root,
		profile: profile.Anthropic("claude-opus-5-5"), busy: llm.KindServer,
		tooLong: llmtest.Fault{
			Status: 400, Type: "invalid_request_error",
			Message: "prompt is too long: 210000 tokens > 200000 maximum",
		},
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
	}
}

func generateWire() wire {
	return wire{
		name: llmtest.Generate, model: "gemini/gemini-3-pro-preview", url: (*llmtest.Server).Root,
		profile: profile.Gemini("gemini-3-pro-preview"), noIDs: true, objects: true,
		// an overloaded service answers UNAVAILABLE
		busy: llm.KindOverloaded,
		tooLong: llmtest.Fault{
			Status: 400, Code: "INVALID_ARGUMENT", Message: "The input token count (1200000) exceeds the " +
				"maximum number of tokens allowed (1048576).",
		},
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

// brain makes the calls of the answers of b as a model on w makes them.
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

// passes reports whether the service sends a call of its model.
func (w wire) passes(c llmtest.Call) bool {
	return !w.objects || c.Arguments == "" || strings.HasPrefix(c.Arguments, "{") &&
		json.Valid([]byte(c.Arguments))
}

// bad is a call with wrong arguments, malformed ones if the service sends them, and part of its
// result.
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
	client, err := w.client(srv, 0)
	if err != nil {
		t.Fatal(err)
	}
	onWire := func(c *agent.Config) {
		c.Client, c.Profile = client, w.profile
		c.Settings.CommandTimeout = agent.DefaultMaxCommandTimeout // the machine may be busy
	}
	s := newSession(t, nil, append([]func(*agent.Config){onWire}, change...)...)
	s.server.Close() // it is unused
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

// modelFlags make the program use a server on a wire.
func modelFlags(srv *llmtest.Server, w wire) []string {
	return []string{"--model=" + w.model, "--base-url=" + w.url(srv)}
}
