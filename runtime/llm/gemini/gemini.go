// Package gemini is an llm.Client for Google's Gemini API (streamGenerateContent).
//
// # Complete answers
//
// A stream is complete if it has a finish reason and ends regularly. A stream that breaks off after
// the finish reason is complete, too, if the usage came with the finish reason or after it. Any
// other end of a stream is an *llm.Error, and so is the finish reason of a failed model, such as
// MALFORMED_FUNCTION_CALL; a caller may retry both. An answer beyond a bound of package llm,
// such as llm.MaxAnswer, or an event of more than 16 MiB is an error, too, and is not retryable.
//
// # Tool calls
//
// Most models give their calls no ids, and llm.ToolCall.ID is empty then. In later requests a call
// has an id only if the model gave it one; results stand in the order of the calls, in one content.
// The API cannot disable parallel calls, so llm.Request.ParallelToolCalls changes nothing.
//
// # Reasoning
//
// A model signs some parts of its answer, and each signature must go back with its part. A part of
// reasoning in the message, directly before the text or call, holds the fields that go back with
// it: its Opaque is the part of the API without the text and without the arguments. Parts that are
// neither text nor call, such as code that the server ran, are kept whole. Models from Gemini 3 on
// reject a call without a signature; a call of another model gets the value that Google defines for
// this.
//
// Request.ReasoningEffort is a thinking level (minimal, low, medium, high) from Gemini 3 on. Before
// that it becomes a budget: 1,024 tokens for minimal and low, 8,192 for medium, 24,576 for high. A
// number is a budget with any model, and "none" is the budget 0. Requests include thoughts if the
// model has them.
//
// # Options
//
// Request.Options are merged into the request body as RFC 7396 defines: objects are merged, other
// values replace, and nil removes a field. Their names are those of the body, such as
// safetySettings, toolConfig, generationConfig and cachedContent. A list of tools is appended to
// those of the request: {"tools": [{"googleSearch": {}}]} adds grounding.
package gemini

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// DefaultBaseURL is the address of Google's servers.
const DefaultBaseURL = "https://generativelanguage.googleapis.com"

// Config describes how to reach a server.
type Config struct {
	// APIKey is sent in the header x-goog-api-key. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/v1beta"; empty means DefaultBaseURL. A "/v1beta" at
	// its end is ignored.
	BaseURL string
	// HTTPClient sends the requests. Nil means one with the proxies of the environment variables
	// (HTTPS_PROXY and so on), the system's root certificates and no time limit for a whole answer.
	// Its CheckRedirect has no effect: a redirect is an error.
	HTTPClient *http.Client
	// Headers are sent with each request, and replace those of the same name.
	Headers map[string]string
	// IdleTimeout bounds the wait for the next byte, from sending the request on; zero means 5
	// minutes.
	IdleTimeout time.Duration
	// Provider names the server in errors and marks its opaque reasoning, which goes back to the same
	// Provider only; empty means "gemini".
	Provider string
}

// New returns a client. It sends nothing, and reads no environment variables but those of proxies.
func New(cfg Config) (llm.Client, error) {
	endpoint, err := exchange.New(exchange.Config(cfg), "gemini", DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	return &client{endpoint}, nil
}

type client struct{ *exchange.Endpoint }

var _ llm.Client = (*client)(nil)

// Stream implements llm.Client.
func (c *client) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return c.Endpoint.Stream(ctx,
		func(ctx context.Context, x *exchange.Exchange) (exchange.Decoder, error) {
			return &decoder{provider: c.Provider}, c.send(ctx, x, req)
		})
}

func (c *client) send(ctx context.Context, x *exchange.Exchange, req llm.Request) error {
	address, err := c.address(req.Model)
	if err != nil {
		return err
	}
	body, err := c.request(req)
	if err != nil {
		return err
	}
	if x.Patches, err = exchange.OptionsPatch(otherOptions(req.Options)); err != nil {
		return err
	}
	header := make(http.Header)
	if c.APIKey != "" {
		header.Set("X-Goog-Api-Key", c.APIKey)
	}
	return x.Post(ctx, address, header, body)
}

// address returns the address of requests for a model. A name may have the prefix "models/" or that
// of another collection of models.
func (c *client) address(model string) (string, error) {
	collection, name, ok := strings.Cut(model, "/")
	if !ok {
		collection, name = "models", model
	}
	if name == "" || collection != "models" && collection != "tunedModels" {
		return "", fmt.Errorf("%q is not the name of a model", model)
	}
	root := strings.TrimSuffix(strings.TrimRight(c.BaseURL, "/"), "/v1beta")
	return root + "/v1beta/" + collection + "/" + url.PathEscape(name) +
		":streamGenerateContent?alt=sse", nil
}
