package clienttest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// Key is the API key of clients whose server accepts any.
const Key = "sk-secret-0123456789"

// Config has the common fields of the configurations of all clients.
type Config struct {
	APIKey      string
	BaseURL     string
	HTTPClient  *http.Client
	Headers     map[string]string
	IdleTimeout time.Duration
	Provider    string
}

// Failure is a fault of a server, and the error that a client reports for it.
type Failure struct {
	Fault llmtest.Fault
	Kind  llm.ErrorKind
	// Text is part of the message.
	Text string
}

// Wire is a wire format and its peculiarities.
type Wire struct {
	// New makes a client.
	New func(Config) (llm.Client, error)
	// Provider is the default name in errors.
	Provider string
	// Model is the model of requests.
	Model string
	// Base is the path of base URLs. Path is the path of requests below a base URL, with the query.
	// Ignored is an ignored end of a base URL; may be empty.
	Base, Path, Ignored string
	// KeyHeader is the header of the key, and KeyPrefix the text before the key.
	KeyHeader, KeyPrefix string
	// Stream returns the answer of one text. The text is in one event, as JSON.
	Stream func(text string) string
	// Usage has every number that an answer can report.
	Usage llm.Usage
	// Marks is true if answers have parts of reasoning without text, which belong to the part after
	// them.
	Marks bool
	// Objects is true if arguments are always an object: the server fails if the model wrote another
	// value, and adds missing ones.
	Objects bool
	// Everything returns a request with one of everything.
	Everything func() llm.Request
	// Options have equal meaning in any order.
	Options map[string]any
	// Variables are environment variables that the library below reads and the client must ignore.
	// Their values have "from-the-process".
	Variables map[string]string
	// Refused are answers without a stream, Broken faults in streams, and Unsendable changes that make
	// a request invalid; beside those of all wires.
	Refused, Broken map[string]Failure
	Unsendable      map[string]func(*llm.Request)
	// Floods are answers that do not end, beside those of all wires. That of the name "text" has no
	// start that matters.
	Floods map[string]Flood
}

// Client returns a client with the configuration cfg.
func (w Wire) Client(t *testing.T, cfg Config) llm.Client {
	t.Helper()
	c, err := w.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Connect starts a server and returns a client of it.
func (w Wire) Connect(t *testing.T, brain llmtest.Brain) (*llmtest.Server, llm.Client) {
	t.Helper()
	return w.connect(t, brain, Config{})
}

// connect is Connect with a configuration, whose address and missing fields it fills in.
func (w Wire) connect(t *testing.T, brain llmtest.Brain, cfg Config) (*llmtest.Server, llm.Client) {
	t.Helper()
	srv := llmtest.NewServer(t, brain)
	cfg.BaseURL = srv.Root() + w.Base
	if cfg.APIKey == "" {
		cfg.APIKey = srv.Key()
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = srv.Client()
	}
	return srv, w.Client(t, cfg)
}

// Raw returns a client of a server that answers every request with the same stream.
func (w Wire) Raw(t *testing.T, stream string) llm.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = rw.Write([]byte(stream))
	}))
	t.Cleanup(srv.Close)
	return w.Client(t, Config{APIKey: Key, BaseURL: srv.URL, HTTPClient: srv.Client()})
}

// Sent returns the request that a client sends for req, nil for none, and its error. The base URL
// of cfg is a path.
func (w Wire) Sent(t *testing.T, cfg Config, req llm.Request) (*http.Request, []byte, error) {
	t.Helper()
	var got *http.Request
	var body bytes.Buffer
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = body.ReadFrom(r.Body)
	}))
	defer srv.Close()
	cfg.BaseURL, cfg.HTTPClient = srv.URL+cfg.BaseURL, srv.Client()
	_, err := llm.Complete(t.Context(), w.Client(t, cfg), req)
	return got, body.Bytes(), err
}

// Request returns a request with a system prompt and a tool.
func (w Wire) Request() llm.Request {
	return llm.Request{
		Model: w.Model, System: "be brief", Messages: []llm.Message{llm.UserText("hello")},
		ParallelToolCalls: true,
		Tools: []llm.ToolSpec{{
			Name: "shell", Description: "runs a command",
			Schema: json.RawMessage(
				`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
		}},
	}
}

// Reply returns an answer with one of everything, each in several pieces, with characters of
// several bytes, and with numbers that change if they are decoded and encoded.
func (w Wire) Reply() llmtest.Reply {
	return llmtest.Reply{
		Reasoning: "Ich überlege, was zu tun ist — 考え中 🤔.",
		Text:      "Ich führe zuerst die Tests aus: <go test> & \"mehr\" 🚀.",
		Calls: []llmtest.Call{
			{
				ID: "call_a", Name: "shell",
				Arguments: `{"command":"go test ./... && echo \"größer\" > /tmp/x","n":9007199254740993}`,
			},
			{ID: "call_b", Name: "shell", Arguments: `{"z":1.50,"command":"ls -la /some/long/path/to/see"}`},
		},
		Usage: w.Usage,
	}
}

// checkReply fails the test unless resp is the whole of Reply.
func (w Wire) checkReply(t *testing.T, resp llm.Response) {
	t.Helper()
	r := w.Reply()
	want := []llm.Part{
		Thought(r.Reasoning), llm.Text(r.Text), Called("call_a", "shell",
			r.Calls[0].Arguments), Called("call_b", "shell", r.Calls[1].Arguments),
	}
	var got []llm.Part
	for _, p := range resp.Message.Parts {
		if p.Kind == llm.PartReasoning {
			if w.Marks && p.Reasoning.Text == "" {
				continue
			}
			// The opaque part differs between wires.
			p = Thought(p.Reasoning.Text)
		}
		got = append(got, p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if resp.Finish != llm.FinishToolCalls || resp.Usage != r.Usage || resp.Model != w.Model ||
		resp.ResponseID == "" {
		t.Errorf("got %+v", resp)
	}
}

// Thought returns a part of reasoning with a text only.
func Thought(text string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Text: text}}
}

// Called returns a part with a call.
func Called(id, name, args string) llm.Part {
	return llm.Part{Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{
		ID: id, Name: name, Arguments: args,
	}}
}

// Result returns a message with the result of one call.
func Result(r llm.ToolResult) llm.Message {
	return llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{
		Kind: llm.PartToolResult, ToolResult: &r,
	}}}
}

// Picture returns a part with an image.
func Picture() llm.Part {
	return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: "image/png", Data: []byte("png")}}
}

// Converse sends a request, and after each answer the results of its calls, the first of which is
// an error with an image. It returns the request after that many answers.
func Converse(t *testing.T, c llm.Client, req llm.Request, answers int) llm.Request {
	t.Helper()
	req.Messages[0].Parts = append(req.Messages[0].Parts, Picture())
	for range answers {
		resp, err := llm.Complete(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, resp.Message)
		// Each result is a separate message, as a loop may write them.
		for i, call := range resp.Message.ToolCalls() {
			r := llm.ToolResult{CallID: call.ID, Name: call.Name, Parts: []llm.Part{llm.Text("ok")}}
			if i == 0 {
				r.Parts, r.IsError = []llm.Part{Picture()}, true
			}
			req.Messages = append(req.Messages, Result(r))
		}
		req.Messages = append(req.Messages, llm.UserText("go on"), llm.UserText("please"))
	}
	return req
}

// SSE returns a stream of events without names, one for each JSON text.
func SSE(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

// Golden compares a body with testdata/name.json, so that a review sees changes of the wire form.
// With update it writes the file first.
func Golden(t *testing.T, update bool, name string, body []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteByte('\n')
	golden := filepath.Join("testdata", name+".json")
	if update {
		if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.ReplaceAll(string(file), "\r\n", "\n"), pretty.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}
