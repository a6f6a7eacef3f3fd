// Package anthropic is an llm.Client for Anthropic's Messages interface, and for the servers that
// speak it.
//
// # What a complete answer is
//
// A stream is complete at message_stop, when each of its blocks has ended. Whatever else ends a
// stream is an *llm.Error, which a caller may retry. One event may have 16 MiB, an answer 256 MiB.
//
// # Thinking
//
// Request.ReasoningEffort becomes output_config.effort with adaptive thinking, whose text is asked
// for in summary. Models that know neither (Claude 4.5 and before) get a budget of thinking tokens:
// 4,096 for "low", 12,288 for "medium", 24,576 for "high", 65,536 for "xhigh" and "max", and never
// more than half of the answer; none for an answer of less than 2,048 tokens, nor in the middle of
// calls that another provider's model began. Without an effort nothing is said of thinking, and the
// model does what is its default.
//
// Blocks of thinking go back as they came and where they came, for the server checks their
// signatures, and with newer models also that nothing before them has changed: system prompt, tools
// and messages. So what is sent of an answer that another message follows stays the same for the
// rest of the conversation.
//
// # Caching
//
// The server is asked to cache up to the last tool, the system prompt, and the last two user
// messages, so that each request finds what the one before it left.
//
// # Options
//
// Request.Options are merged into the request body as RFC 7396 says: objects are merged, other
// values replace, and nil removes a field. Three have a meaning here:
//   - "betas", a list of names, is sent as the header anthropic-beta and not in the body. A header of that name in
//     Config.Headers replaces it.
//   - "thinking" takes the place of what ReasoningEffort says of thinking.
//   - "cache_control" takes the place of this client's marks: an object leaves caching to the server's own choice, nil
//     turns it off.
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// Defaults of Config.
const (
	DefaultBaseURL     = "https://api.anthropic.com"
	DefaultIdleTimeout = 5 * time.Minute
	DefaultProvider    = "anthropic"
)

// DefaultMaxTokens is the limit of an answer, thinking included, for a request that sets none, for
// the server wants one. It is the most that every model takes which Anthropic serves since Claude
// 4.5; a higher limit than a model's own is refused, and a limit that is not reached costs nothing.
const DefaultMaxTokens = 64_000

// Config says how to reach a server.
type Config struct {
	// APIKey is sent in the header x-api-key. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/v1/messages"; empty means DefaultBaseURL. A "/v1" at
	// its end is ignored.
	BaseURL string
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

// New returns a client. It sends nothing, and reads no variables of the process but those of
// proxies.
func New(cfg Config) (llm.Client, error) {
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, errors.New("anthropic: the API key is missing")
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, DefaultBaseURL)
	cfg.Provider = cmp.Or(cfg.Provider, DefaultProvider)
	endpoint, err := exchange.New(exchange.Config{
		Provider: cfg.Provider, APIKey: cfg.APIKey, BaseURL: cfg.BaseURL, HTTPClient: cfg.HTTPClient,
		Headers:     cfg.Headers,
		IdleTimeout: cmp.Or(cfg.IdleTimeout, DefaultIdleTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	return &client{
		address:  strings.TrimSuffix(strings.TrimRight(cfg.BaseURL, "/"), "/v1") + "/v1/messages",
		key:      cfg.APIKey,
		endpoint: endpoint,
		provider: cfg.Provider,
	}, nil
}

type client struct {
	address  string
	key      string
	endpoint *exchange.Endpoint
	provider string
}

var _ llm.Client = (*client)(nil)

// Stream implements llm.Client.
func (c *client) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return c.endpoint.Stream(ctx, func(ctx context.Context, x *exchange.Exchange,
		emit func(llm.Delta) bool,
	) error {
		return c.exchange(ctx, x, req, emit)
	})
}

// exchange sends req and emits the answer until it is complete, fails, or emit returns false.
func (c *client) exchange(
	ctx context.Context, x *exchange.Exchange, req llm.Request, emit func(llm.Delta) bool,
) error {
	if err := c.send(ctx, x, req); err != nil {
		return x.SendError(err)
	}
	dec := decoder{provider: c.provider}
	for {
		data, err := x.Event()
		if len(data) > 0 {
			deltas, failure := dec.event(data)
			for _, d := range deltas {
				if !emit(d) {
					return nil
				}
				if d.Kind == llm.DeltaDone {
					x.Drain()
					return nil
				}
			}
			if failure != nil {
				return x.EventError(failure)
			}
		}
		if err != nil {
			return x.ReadError(err)
		}
	}
}

func (c *client) send(ctx context.Context, x *exchange.Exchange, req llm.Request) error {
	fields, betas, err := splitOptions(req.Options)
	if err != nil {
		return err
	}
	if x.Patches, err = exchange.OptionsPatch(fields); err != nil {
		return err
	}
	body, err := c.request(req)
	if err != nil {
		return err
	}
	header := http.Header{"Anthropic-Version": {apiVersion}}
	if c.key != "" {
		header.Set("X-Api-Key", c.key)
	}
	if betas != "" {
		header.Set("Anthropic-Beta", betas)
	}
	return x.Post(ctx, c.address, header, body)
}
