// Package openai is an llm.Client for OpenAI's Responses and Chat Completions interfaces, and for
// the many servers that speak one of them.
//
// # What a complete answer is
//
// A Responses stream is complete at response.completed or response.incomplete, a Chat stream once a
// finish_reason has come. Whatever else ends a stream is an *llm.Error, which a caller may retry.
// One event may have 16 MiB, an answer 256 MiB.
//
// # Options
//
// Request.Options are merged into the request body as RFC 7396 says: objects are merged, other
// values replace, and nil removes a field, which helps with servers that refuse one they do not
// know.
package openai

import (
	"cmp"
	"context"
	"errors"
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
	// Chat is Chat Completions, which most compatible servers speak.
	Chat API = "chat"
)

// Defaults of Config.
const (
	DefaultBaseURL     = "https://api.openai.com/v1"
	DefaultIdleTimeout = 5 * time.Minute
	DefaultProvider    = "openai"
)

// Config says how to reach a server.
type Config struct {
	// APIKey is sent as a bearer token. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/responses" or "/chat/completions"; empty means
	// DefaultBaseURL.
	BaseURL string
	// API is the interface to speak; empty means Responses.
	API API
	// HTTPClient sends the requests. Nil means one with the proxies of the process's variables
	// (HTTPS_PROXY and so on), the system's root certificates and no limit for a whole answer.
	HTTPClient *http.Client
	// Headers are sent with each request, and replace those of the same name.
	Headers map[string]string
	// IdleTimeout is how long to wait for the next byte, from sending the request on; zero means
	// DefaultIdleTimeout.
	IdleTimeout time.Duration
	// Provider names the server in errors and marks its opaque reasoning, which goes back to the same
	// Provider only; empty means DefaultProvider.
	Provider string
}

// New returns a client. It sends nothing.
func New(cfg Config) (llm.Client, error) {
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, errors.New("openai: the API key is missing")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.API == "" {
		cfg.API = Responses
	}
	if cfg.Provider == "" {
		cfg.Provider = DefaultProvider
	}
	if cfg.API != Responses && cfg.API != Chat {
		return nil, fmt.Errorf("openai: the interface %q is neither %q nor %q", cfg.API, Responses, Chat)
	}
	endpoint, err := exchange.New(exchange.Config{
		Provider: cfg.Provider, APIKey: cfg.APIKey, BaseURL: cfg.BaseURL, HTTPClient: cfg.HTTPClient,
		Headers:     cfg.Headers,
		IdleTimeout: cmp.Or(cfg.IdleTimeout, DefaultIdleTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	sdk := goopenai.DefaultConfig(cfg.APIKey)
	sdk.BaseURL = cfg.BaseURL
	return &client{api: cfg.API, sdk: sdk, endpoint: endpoint, provider: cfg.Provider}, nil
}

type client struct {
	api      API
	sdk      goopenai.ClientConfig
	endpoint *exchange.Endpoint
	provider string
}

var _ llm.Client = (*client)(nil)

// decoder makes deltas of the events of one stream.
type decoder interface {
	// event takes the data of one event. An answer is complete with DeltaDone, which is the last
	// delta.
	event(data []byte) ([]llm.Delta, error)
	// end returns what completes the answer if the stream ends now; false if the answer is not
	// complete.
	end() (llm.Delta, bool)
}

// rawStream is what the streams of go-openai have in common.
type rawStream interface {
	RecvRaw() ([]byte, error)
	Close() error
}

// Stream implements llm.Client.
func (c *client) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return c.endpoint.Stream(ctx, func(ctx context.Context, x *exchange.Exchange,
		emit func(llm.Delta) bool,
	) error {
		return c.ask(ctx, x, req, emit)
	})
}

// ask sends req and emits the answer until it is complete, fails, or emit returns false.
func (c *client) ask(
	ctx context.Context, x *exchange.Exchange, req llm.Request, emit func(llm.Delta) bool,
) error {
	stream, dec, err := c.open(ctx, x, req)
	if err != nil {
		return x.SendError(err)
	}
	defer func() { _ = stream.Close() }()
	for {
		data, err := stream.RecvRaw()
		if err != nil {
			d, complete := dec.end()
			if !complete || x.Interrupted() {
				return x.ReadError(err)
			}
			emit(d)
			x.Drain()
			return nil
		}
		deltas, err := dec.event(data)
		for _, d := range deltas {
			if !emit(d) {
				return nil
			}
			if d.Kind == llm.DeltaDone {
				x.Drain()
				return nil
			}
		}
		if err != nil {
			return x.EventError(err)
		}
	}
}

// open sends req and returns the stream of its answer.
func (c *client) open(
	ctx context.Context, x *exchange.Exchange, req llm.Request,
) (rawStream, decoder, error) {
	patch, err := exchange.OptionsPatch(req.Options)
	if err != nil {
		return nil, nil, err
	}
	config := c.sdk
	config.HTTPClient = x
	sdk := goopenai.NewClientWithConfig(config)
	if c.api == Chat {
		body, err := chatRequest(req)
		if err != nil {
			return nil, nil, err
		}
		// The model goes in beside the library, which refuses parameters by the names of models.
		if x.Patches, err = exchange.ModelPatch(req.Model); err != nil {
			return nil, nil, err
		}
		x.Patches = append(x.Patches, patch...)
		stream, err := sdk.CreateChatCompletionStream(ctx, body)
		return stream, &chatDecoder{}, err
	}
	body, err := c.responsesRequest(req)
	if err != nil {
		return nil, nil, err
	}
	x.Patches = patch
	stream, err := sdk.CreateResponseStream(ctx, body)
	return stream, &responsesDecoder{provider: c.provider}, err
}
