// Package exchange is what the clients of all providers have in common: one HTTP request, whose
// answer is a stream of server-sent events, with limits of size and silence, and errors that are
// classified and hold no secret.
package exchange

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says how to reach a server.
type Config struct {
	// Provider names the server in errors.
	Provider string
	// APIKey is kept out of errors. It is not sent, which is the library's part.
	APIKey string
	// BaseURL is only checked.
	BaseURL string
	// HTTPClient sends the requests. Nil means one with the proxies of the process's variables, the
	// system's root certificates and no limit for a whole answer.
	HTTPClient *http.Client
	// Headers are sent with each request, and replace those of the same name. Their values are kept
	// out of errors.
	Headers map[string]string
	// IdleTimeout is how long to wait for the next byte, from sending the request on.
	IdleTimeout time.Duration
	// EventNames keeps the names of events for a library that reads them.
	EventNames bool
}

// Endpoint is a server. It is safe for concurrent use.
type Endpoint struct {
	http     *http.Client
	headers  http.Header
	idle     time.Duration
	provider string
	redact   func(string) string
	names    bool
}

// New returns the server that cfg describes. It sends nothing. Errors do not repeat the address,
// for it may hold a password.
func New(cfg Config) (*Endpoint, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Endpoint{
		http: cfg.HTTPClient, headers: make(http.Header), idle: cfg.IdleTimeout, provider: cfg.Provider,
		names: cfg.EventNames,
	}
	if e.http == nil {
		e.http = &http.Client{Transport: newTransport()}
	}
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
		// The address is not repeated, for it may hold a password.
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
			return fmt.Errorf("%q is no name of a header", name)
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

// newTransport is like http.DefaultTransport, but not shared, and with room for many sessions at
// once. It sets no limit on the wait for headers, for the idle timeout covers it.
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
	}
}
