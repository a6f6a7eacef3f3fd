package remote

import (
	"cmp"
	"crypto/rand"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Options.
const (
	DefaultTTL          = 60 * time.Second
	DefaultStartTimeout = 2 * time.Minute
)

// Options are the settings that all backends have.
type Options struct {
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// TTL is how long the environment lives without a client; 0 means DefaultTTL. It is rounded up
	// to milliseconds.
	TTL time.Duration
	// StartTimeout bounds the start, with the delivery of the helper; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// Helper names programs that may serve as the helper.
	Helper Helper
	// Session names the environment: up to 63 lower-case letters, digits and inner hyphens. The
	// default is random.
	Session string
	// Warn, if set, is called with one line for each unexpected condition that is no error.
	Warn func(line string)
}

var sessionPattern = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// IsSession reports whether a name is a valid Options.Session.
func IsSession(name string) bool { return sessionPattern().MatchString(name) }

// Complete returns the options with their defaults, or a *ConfigError for the first invalid field.
// It is for backends; backend is the name of the calling one.
func (o Options) Complete(backend string) (Options, error) {
	bad := func(field, format string, args ...any) (Options, error) {
		return o, BadConfig(backend, field, format, args...)
	}
	for _, v := range o.Vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return bad("var", "%q is not of the form NAME=value", name)
		}
	}
	switch {
	case o.TTL < 0:
		return bad("ttl", "%s is negative", o.TTL)
	case o.StartTimeout < 0:
		return bad("start timeout", "%s is negative", o.StartTimeout)
	case o.Session != "" && !IsSession(o.Session):
		return bad("session", "%q does not consist of up to 63 lower-case letters, digits and inner "+
			"hyphens", o.Session)
	}
	if o.Helper.Binary != "" {
		if _, err := helper.Arch(o.Helper.Binary); err != nil {
			return o, &ConfigError{Backend: backend, Field: "helper", Reason: err.Error(), Err: err}
		}
	}
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	if part := o.TTL % time.Millisecond; part > 0 {
		o.TTL += time.Millisecond - part
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, DefaultStartTimeout)
	o.Session = cmp.Or(o.Session, strings.ToLower(rand.Text()))
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return o, nil
}
