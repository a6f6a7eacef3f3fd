// Package exchange is the part that the clients of all providers share: one HTTP request whose
// answer is a stream of server-sent events, with limits of size and silence, and errors that are
// classified and hold no secret.
package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// defaultIdleTimeout is the IdleTimeout of a Config that sets none.
const defaultIdleTimeout = 5 * time.Minute

// Config describes how to reach a server. The Config of a provider without further fields converts
// to it.
type Config struct {
	// APIKey is redacted in errors. The client of the provider sends it.
	APIKey  string
	BaseURL string
	// HTTPClient sends the requests. Nil means one with the proxies of the environment variables
	// (HTTPS_PROXY and so on), the system's root certificates and no time limit for a whole answer.
	// Its CheckRedirect has no effect: a redirect is an error.
	HTTPClient *http.Client
	// Headers are sent with each request, and replace those of the same name. Their values are
	// redacted in errors.
	Headers map[string]string
	// IdleTimeout bounds the wait for the next byte, from sending the request on.
	IdleTimeout time.Duration
	// Provider names the server in errors.
	Provider string
}

// Endpoint is a server. It is safe for concurrent use.
type Endpoint struct {
	// Config is the configuration with its defaults.
	Config

	headers http.Header
	redact  func(string) string
}

// New returns the server that cfg describes. Provider and base URL default to the given ones. New
// sends nothing. Its errors start with the provider and do not repeat the base URL, which may hold
// a password.
func New(cfg Config, provider, baseURL string) (*Endpoint, error) {
	if cfg.APIKey == "" && cfg.BaseURL == "" {
		return nil, fmt.Errorf("%s: the API key is missing", provider)
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, baseURL)
	cfg.Provider = cmp.Or(cfg.Provider, provider)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", provider, err)
	}
	hc := http.Client{}
	if cfg.HTTPClient != nil {
		hc = *cfg.HTTPClient
	} else {
		hc.Transport = newTransport()
	}
	// The target of a redirect would get the key and the prompt.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.HTTPClient = &hc
	e := &Endpoint{Config: cfg, headers: make(http.Header)}
	secrets := []string{cfg.APIKey}
	for name, value := range cfg.Headers {
		e.headers.Set(name, value)
		secrets = append(secrets, value)
	}
	e.redact = redactor(secrets)
	return e, nil
}

func (cfg Config) validate() error {
	if cfg.IdleTimeout < 0 {
		return fmt.Errorf("the idle timeout %s is negative", cfg.IdleTimeout)
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the base URL is not of the form http(s)://host[:port][/path]")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the base URL has a query or a fragment")
	}
	if !isHeaderValue(cfg.APIKey) {
		return errors.New("the API key has a line break or another control character")
	}
	for name, value := range cfg.Headers {
		if !isHeaderName(name) {
			return fmt.Errorf("%q is not the name of a header", name)
		}
		if !isHeaderValue(value) {
			return fmt.Errorf("the header %s has a line break or another control character", name)
		}
	}
	return nil
}

func isHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

// newTransport returns a transport like http.DefaultTransport, but not shared, and with room for
// many concurrent sessions. The idle timeout bounds the wait for headers.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: time.Second,

		MaxResponseHeaderBytes: 1 << 20,
	}
}
