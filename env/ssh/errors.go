package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// ConfigError reports an invalid value of Target or Config, or a file of theirs that cannot be
// used. The field "StrictHostKeyChecking" is a setting that Target.AcceptNew replaces.
type ConfigError = remote.ConfigError

// OpenError reports an environment that could not be started on a connected host.
type OpenError = remote.OpenError

// badConfig returns a *ConfigError.
func badConfig(field, format string, args ...any) error {
	return remote.BadConfig(backend, field, format, args...)
}

// ConnectError reports that a host could not be reached, or does not speak SSH.
type ConnectError struct {
	// Host is user@host:port.
	Host string
	Err  error
}

func (e *ConnectError) Error() string {
	text := "ssh: connect to " + e.Host + ": " + cleanText(fmt.Sprint(e.Err))
	if hint := e.hint(); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// hint returns a remedy, or an empty string.
func (e *ConnectError) hint() string {
	var name *net.DNSError
	var slow *timeoutError
	switch {
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		return ""
	case errors.As(e.Err, &name):
		return "is the name right? An alias needs a HostName in the ssh_config"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "nothing listens on that port; is the SSH server running, and the port right?"
	case errors.As(e.Err, &slow), errors.Is(e.Err, os.ErrDeadlineExceeded):
		return "is the host up, and does a firewall let SSH through?"
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, syscall.ECONNRESET),
		strings.Contains(e.Err.Error(), "version string"):
		return "is that an SSH server?"
	}
	return ""
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// timeoutError means that a host took too long. errors.Is matches os.ErrDeadlineExceeded.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string        { return fmt.Sprintf("no answer within %v", e.after) }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// HostKeyKind classifies a HostKeyError.
type HostKeyKind string

// Kinds of HostKeyError.
const (
	HostKeyUnknown HostKeyKind = "unknown"           // no known_hosts file has a key of the host
	HostKeyChanged HostKeyKind = "changed"           // they have another key
	HostKeyRevoked HostKeyKind = "revoked"           // they revoke the key
	HostKeyTypes   HostKeyKind = "none of the known" // the host has no key of a known type
	HostKeyCert    HostKeyKind = "bad certificate"   // the host's certificate is not valid for it
)

// HostKeyError reports that a host did not prove its identity. Nothing was sent to it.
type HostKeyError struct {
	// Host is its name in known_hosts files.
	Host string
	Kind HostKeyKind
	// Type and Fingerprint describe the key that the host showed; empty for HostKeyTypes.
	Type, Fingerprint string
	// Known are the trusted keys of the host, or the one that is revoked.
	Known []KnownKey
	// Reason explains HostKeyCert and HostKeyTypes.
	Reason string
	// File is the known_hosts file for new keys; it may be empty.
	File string
}

// KnownKey is a key in a known_hosts file.
type KnownKey struct {
	File              string
	Line              int
	Type, Fingerprint string
}

func (k KnownKey) String() string {
	if k.File == "" {
		return fmt.Sprintf("%s %s, seen before", k.Type, k.Fingerprint)
	}
	return fmt.Sprintf("%s %s of %s:%d", k.Type, k.Fingerprint, k.File, k.Line)
}

func (e *HostKeyError) Error() string {
	host := cleanText(e.Host)
	known := make([]string, len(e.Known))
	for i, k := range e.Known {
		known[i] = k.String()
	}
	list := cleanText(strings.Join(known, ", "))
	shown := e.Type + " " + e.Fingerprint
	switch e.Kind {
	case HostKeyUnknown:
		return fmt.Sprintf("ssh: the host key of %s is not known: it shows %s; compare that with the "+
			"key that the host's owner names, then add it, with \"ssh %s\" once, or with "+
			"\"ssh-keyscan\" into %s", host, shown, e.login(), cmp.Or(e.File, "a known_hosts file"))
	case HostKeyChanged:
		return fmt.Sprintf("ssh: the host key of %s has changed: it shows %s, and it should be %s; "+
			"somebody may be in between, or the host was set up anew: ask its owner, and take the old "+
			"line out if so", host, shown, list)
	case HostKeyRevoked:
		return fmt.Sprintf("ssh: the host key of %s is revoked: it shows %s, marked @revoked as %s; "+
			"ask the host's owner", host, shown, list)
	case HostKeyTypes:
		return fmt.Sprintf("ssh: the host %s has none of the host keys that are known: they are %s, "+
			"%s; ask its owner which keys it should have, and take the old lines out if they are none of "+
			"them", host, list, cleanText(e.Reason))
	}
	return fmt.Sprintf("ssh: the certificate of the host %s is not good: %s (it shows %s); ask the "+
		"host's owner", host, cleanText(e.Reason), shown)
}

// login returns the host as arguments of ssh.
func (e *HostKeyError) login() string {
	if rest, ok := strings.CutPrefix(e.Host, "["); ok {
		if host, port, ok := strings.Cut(rest, "]:"); ok {
			return "-p " + port + " " + host
		}
	}
	return e.Host
}

// AuthError reports that a host rejected the login.
type AuthError struct {
	User string
	// Host is host:port.
	Host string
	// Offered are the methods that the server accepts, as it names them.
	Offered []string
	// Keys describe the keys that were available, in their order.
	Keys []string
	// Unused describe keys that could not be tried, and why.
	Unused []string
	// Banner is a message of the server. It is untrusted, and may be empty.
	Banner string
	Err    error
	// partial means that the server accepted a key and requires a second factor.
	partial bool
}

func (e *AuthError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "ssh: log in as %s on %s: ", e.User, e.Host)
	var locked *keyError
	switch {
	case errors.As(e.Err, &locked):
		text.WriteString(locked.Error())
	case e.partial && !e.takesKeys():
		fmt.Fprintf(&text, "the server accepts the key and also requires %s, which is not supported",
			cleanText(strings.Join(e.Offered, " or ")))
	case len(e.Offered) > 0 && !e.takesKeys():
		fmt.Fprintf(&text, "the server takes no keys, only %s, which is not supported; let it take keys",
			cleanText(strings.Join(e.Offered, ", ")))
	case len(e.Keys) == 0:
		text.WriteString("no key to try; name one with IdentityFile in the ssh_config, or add one to " +
			"ssh-agent")
	default:
		fmt.Fprintf(&text, "the server takes none of the keys %s", strings.Join(e.Keys, ", "))
		if e.TooMany() {
			fmt.Fprintf(&text, " before it has had enough (%s); IdentitiesOnly and IdentityFile try fewer",
				cleanText(e.Err.Error()))
		}
		text.WriteString("; is the user name right, and is the key in authorized_keys on the host?")
	}
	if len(e.Unused) > 0 {
		fmt.Fprintf(&text, "; not tried: %s", strings.Join(e.Unused, "; "))
	}
	if e.Banner != "" {
		fmt.Fprintf(&text, "; the banner of the server: %s", cleanText(e.Banner))
	}
	return text.String()
}

func (e *AuthError) takesKeys() bool {
	return slices.Contains(e.Offered, "publickey")
}

// TooMany reports whether the server disconnected after too many keys.
func (e *AuthError) TooMany() bool {
	return e.Err != nil && strings.Contains(strings.ToLower(e.Err.Error()), "too many auth")
}

// Unwrap returns the cause.
func (e *AuthError) Unwrap() error { return e.Err }

// keyError means that a key file cannot be used.
type keyError struct {
	file   string
	reason string
	err    error
	// absent means that the private key does not exist.
	absent bool
}

func (e *keyError) Error() string { return "the key " + cleanText(e.file) + " " + e.reason }

func (e *keyError) Unwrap() error { return e.err }

// maxText bounds how much text of a server is shown.
const maxText = 400

// cleanText returns untrusted text as one short line without control characters.
func cleanText(s string) string {
	var b strings.Builder
	blank := true
	for _, r := range s {
		if b.Len() >= maxText {
			b.WriteString("...")
			break
		}
		switch {
		case unicode.IsSpace(r):
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		case r == utf8.RuneError || !unicode.IsGraphic(r):
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
		blank = false
	}
	return strings.TrimSpace(b.String())
}

// HelperDirError reports that no directory of a host can hold the helper and allows its execution.
// Config.HelperDir names another.
type HelperDirError struct {
	// Dirs are the directories that were tried.
	Dirs []string
}

func (e *HelperDirError) Error() string {
	return "no directory on the host is writable and allows execution for the helper: tried " +
		cleanText(strings.Join(e.Dirs, ", "))
}
