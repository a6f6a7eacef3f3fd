// Package openai is an llm.Client for the Responses and Chat Completions interfaces of OpenAI and
// of the many servers that implement one of them.
//
// # Complete answers
//
// A Responses stream is complete at response.completed or response.incomplete, a Chat stream after
// a finish_reason. Any other end of a stream is an *llm.Error, which a caller may retry. An
// answer beyond a bound of package llm, such as llm.MaxAnswer, or an event of more than 16 MiB is
// an error, too, and is not retryable.
//
// # Options
//
// Request.Options are merged into the request body as RFC 7396 defines: objects are merged, other
// values replace, and nil removes a field, for servers that reject it.
package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// API is one of the two interfaces.
type API string

// The interfaces.
const (
	// Responses keeps a model's reasoning between requests. It is the default.
	Responses API = "responses"
	// Chat is Chat Completions, the interface of most compatible servers.
	Chat API = "chat"
)

// DefaultBaseURL is the address of OpenAI's servers.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config describes how to reach a server.
type Config struct {
	// APIKey is sent as a bearer token. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/responses" or "/chat/completions"; empty means
	// DefaultBaseURL.
	BaseURL string
	// API selects the interface; empty means Responses.
	API API
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
	// Provider only; empty means "openai".
	Provider string
}

// New returns a client. It sends nothing, and reads no environment variables but those of proxies.
func New(cfg Config) (llm.Client, error) {
	cfg.API = cmp.Or(cfg.API, Responses)
	if cfg.API != Responses && cfg.API != Chat {
		return nil, fmt.Errorf("openai: the interface %q is neither %q nor %q", cfg.API, Responses, Chat)
	}
	endpoint, err := exchange.New(exchange.Config{
		APIKey: cfg.APIKey, BaseURL: cfg.BaseURL, HTTPClient: cfg.HTTPClient, Headers: cfg.Headers,
		IdleTimeout: cfg.IdleTimeout, Provider: cfg.Provider,
	}, "openai", DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	return &client{endpoint, cfg.API}, nil
}

type client struct {
	*exchange.Endpoint

	api API
}

var _ llm.Client = (*client)(nil)

// Stream implements llm.Client.
func (c *client) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return c.Endpoint.Stream(ctx,
		func(ctx context.Context, x *exchange.Exchange) (exchange.Decoder, error) {
			return c.send(ctx, x, req)
		})
}

// send sends req with the library. The decoder reads the answer past the library, whose reader has
// no limits and loses errors.
func (c *client) send(
	ctx context.Context, x *exchange.Exchange, req llm.Request,
) (exchange.Decoder, error) {
	patches, err := exchange.OptionsPatch(req.Options)
	if err != nil {
		return nil, err
	}
	config := goopenai.DefaultConfig(c.APIKey)
	config.BaseURL, config.HTTPClient = c.BaseURL, x
	sdk := goopenai.NewClientWithConfig(config)
	if c.api == Chat {
		body, err := chatRequest(req)
		if err != nil {
			return nil, err
		}
		// The library rejects parameters by the names of models, so the model is a patch.
		model := exchange.MustJSON(map[string]string{"model": req.Model})
		x.Patches = append([]json.RawMessage{model}, patches...)
		_, err = sdk.CreateChatCompletionStream(ctx, body)
		return &chatDecoder{}, err
	}
	body, err := c.responsesRequest(req)
	if err != nil {
		return nil, err
	}
	x.Patches = patches
	_, err = sdk.CreateResponseStream(ctx, body)
	return &responsesDecoder{provider: c.Provider}, err
}
