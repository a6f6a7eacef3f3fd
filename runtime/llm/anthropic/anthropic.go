// Package anthropic is an llm.Client for the Messages interface of Anthropic and of compatible
// servers.
//
// # Complete answers
//
// A stream is complete at message_stop, after the end of all its blocks. Any other end of a stream
// is an *llm.Error, which a caller may retry. An answer beyond a bound of package llm, such as
// llm.MaxAnswer, or an event of more than 16 MiB is an error, too, and is not retryable.
//
// # Thinking
//
// Request.ReasoningEffort becomes output_config.effort with adaptive thinking and its summary.
// Models that have neither (Claude 4.5 and before) get a budget of thinking tokens: 4,096 for
// "low", 12,288 for "medium", 24,576 for "high", 65,536 for "xhigh" and "max", and never more than
// half of the answer; none for an answer of less than 2,048 tokens, nor in the middle of calls that
// another provider's model made. Without an effort the request has no thinking field, and the
// default of the model applies.
//
// Blocks of thinking go back unchanged and in their order: the server verifies their signatures,
// and with newer models also that the system prompt, the tools and the messages before them are
// unchanged. So the wire form of an answer stays the same for the rest of the conversation, once
// another message follows it.
//
// # Caching
//
// Requests mark the last tool, the system prompt, and the last two user messages for the cache, so
// that each request finds the prefix that the one before it cached.
//
// # Options
//
// Request.Options are merged into the request body as RFC 7396 defines: objects are merged, other
// values replace, and nil removes a field. Three have a special meaning:
//   - "betas", a list of names, is sent as the header anthropic-beta and not in the body. A header
//     of that name in Config.Headers replaces it.
//   - "thinking" replaces the thinking fields of ReasoningEffort.
//   - "cache_control" replaces the marks of this client: an object leaves caching to the server,
//     nil disables it.
package anthropic

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// DefaultBaseURL is the address of Anthropic's servers.
const DefaultBaseURL = "https://api.anthropic.com"

// DefaultMaxTokens is the limit of an answer, including thinking, for a request without one, which
// the server requires. It is the highest limit that all models accept which Anthropic has served
// since Claude 4.5; servers reject a limit above that of the model, and an unused limit costs
// nothing.
const DefaultMaxTokens = 64_000

// Config describes how to reach a server.
type Config struct {
	// APIKey is sent in the header x-api-key. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/v1/messages"; empty means DefaultBaseURL. A "/v1" at
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
	// Provider only; empty means "anthropic".
	Provider string
}

// New returns a client. It sends nothing, and reads no environment variables but those of proxies.
func New(cfg Config) (llm.Client, error) {
	endpoint, err := exchange.New(exchange.Config(cfg), "anthropic", DefaultBaseURL)
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
	root := strings.TrimSuffix(strings.TrimRight(c.BaseURL, "/"), "/v1")
	header := http.Header{"Anthropic-Version": {apiVersion}}
	if c.APIKey != "" {
		header.Set("X-Api-Key", c.APIKey)
	}
	if betas != "" {
		header.Set("Anthropic-Beta", betas)
	}
	return x.Post(ctx, root+"/v1/messages", header, body)
}
