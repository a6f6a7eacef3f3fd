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

// DefaultMaxTokens is the limit of an answer, thinking included, for a request that sets none, for
// the server wants one. It is the most that every model takes which Anthropic serves since Claude
// 4.5; a higher limit than a model's own is refused, and a limit that is not reached costs nothing.
const DefaultMaxTokens = 64_000

// Config describes how to reach a server.
type Config struct {
	// APIKey is sent in the header x-api-key. It may be empty only if BaseURL is set.
	APIKey string
	// BaseURL is the address up to and without "/v1/messages"; empty means DefaultBaseURL. A "/v1" at
	// its end is ignored.
	BaseURL string
	// HTTPClient sends the requests. Nil means one with the proxies of the environment variables
	// (HTTPS_PROXY and so on), the system's root certificates and no limit for a whole answer.
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
