package ssh

import (
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
)

// ConfigError means that a value of Target or Config cannot be meant, or a file that it leads to cannot be used.
type ConfigError struct {
	// Field is the name of the value, in lower case, such as "host", "identity", "known-hosts" or "config".
	Field  string
	Reason string
}

func (e *ConfigError) Error() string { return "ssh: " + e.Field + ": " + e.Reason }

// badConfig returns a ConfigError.
func badConfig(field, format string, args ...any) error {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// ConnectError means that there was no conversation with a host, or none as SSH has it.
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

// hint says what to look at.
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
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, syscall.ECONNRESET), strings.Contains(e.Err.Error(), "version string"):
		return "is that an SSH server?"
	}
	return ""
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// timeoutError means that a host took too long. It is os.ErrDeadlineExceeded for errors.Is.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string        { return fmt.Sprintf("no answer within %v", e.after) }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A HostKeyKind is what is wrong with the key of a host.
type HostKeyKind string

// Kinds of HostKeyError.
const (
	HostKeyUnknown HostKeyKind = "unknown"           // no known_hosts file has a key of the host
	HostKeyChanged HostKeyKind = "changed"           // they have another one
	HostKeyRevoked HostKeyKind = "revoked"           // they say that the key must not be used any more
	HostKeyTypes   HostKeyKind = "none of the known" // the host has no key of a type that they have
	HostKeyCert    HostKeyKind = "bad certificate"   // the host's certificate is not good for it
)

// HostKeyError means that a host has not proved to be the one that it should be. Nothing was sent to it.
type HostKeyError struct {
	// Host is how known_hosts files name it.
	Host string
	Kind HostKeyKind
	// Type and Fingerprint are those of the key that the host has shown; they are empty for HostKeyTypes.
	Type, Fingerprint string
	// Known are the keys that count for the host, or the one that is revoked.
	Known []KnownKey
	// Reason is more about a certificate or about types; it may be empty.
	Reason string
	// file is where a key would be added; it may be empty.
	file string
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
		file := e.file
		if file == "" {
			file = "a known_hosts file"
		}
		return fmt.Sprintf("ssh: the host key of %s is not known: it shows %s; compare that with what the host's owner says, then"+
			" add it with --accept-new-host-key, or with \"ssh %s\" once, or with \"ssh-keyscan\" into %s", host, shown, e.login(), file)
	case HostKeyChanged:
		return fmt.Sprintf("ssh: the host key of %s has changed: it shows %s, and it should be %s; somebody may be in between, or the"+
			" host was set up anew: ask its owner, and take the old line out if so", host, shown, list)
	case HostKeyRevoked:
		return fmt.Sprintf("ssh: the host key of %s is revoked: it shows %s, marked @revoked as %s; ask the host's owner", host, shown, list)
	case HostKeyTypes:
		return fmt.Sprintf("ssh: the host %s has none of the host keys that are known: they are %s, %s; ask its owner which"+
			" keys it should have, and take the old lines out if they are none of them", host, list, cleanText(e.Reason))
	}
	return fmt.Sprintf("ssh: the certificate of the host %s is not good: %s (it shows %s); ask the host's owner", host,
		cleanText(e.Reason), shown)
}

// login is the host as the program ssh takes it.
func (e *HostKeyError) login() string {
	if rest, ok := strings.CutPrefix(e.Host, "["); ok {
		if host, port, ok := strings.Cut(rest, "]:"); ok {
			return "-p " + port + " " + host
		}
	}
	return e.Host
}

// AuthError means that a host does not let the user in.
type AuthError struct {
	User string
	// Host is host:port.
	Host string
	// Offered are the methods that the server takes, as it names them.
	Offered []string
	// Keys are those that there were to try, in this order, for people.
	Keys []string
	// Unused are keys that could not be tried, and why, for people.
	Unused []string
	// Banner is what the server wants people to read. It is untrusted, and may be empty.
	Banner string
	Err    error
	// partial says that the server took a key, and wants more.
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
		fmt.Fprintf(&text, "the server takes the key, and wants %s besides, which is not supported", cleanText(strings.Join(e.Offered, " or ")))
	case len(e.Offered) > 0 && !e.takesKeys():
		fmt.Fprintf(&text, "the server takes no keys, only %s, which is not supported; let it take keys", cleanText(strings.Join(e.Offered, ", ")))
	case len(e.Keys) == 0:
		text.WriteString("there is no key to try; name one with --identity or IdentityFile, or add one to ssh-agent")
	default:
		fmt.Fprintf(&text, "the server takes none of the keys %s", strings.Join(e.Keys, ", "))
		if tooMany(e.Err) {
			fmt.Fprintf(&text, " before it has had enough (%s); IdentitiesOnly or --identity tries fewer", cleanText(e.Err.Error()))
		}
		text.WriteString("; is the user name right, and is the key in authorized_keys there?")
	}
	if len(e.Unused) > 0 {
		fmt.Fprintf(&text, "; not tried: %s", strings.Join(e.Unused, "; "))
	}
	if e.Banner != "" {
		fmt.Fprintf(&text, "; the server says: %s", cleanText(e.Banner))
	}
	return text.String()
}

func (e *AuthError) takesKeys() bool {
	return slices.Contains(e.Offered, "publickey")
}

// tooMany reports whether a server ended the conversation for too many attempts.
func tooMany(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "too many auth")
}

// Unwrap returns the cause.
func (e *AuthError) Unwrap() error { return e.Err }

// keyError means that a key file cannot be used.
type keyError struct {
	file   string
	reason string
	err    error
	// absent says that there is no private key.
	absent bool
}

func (e *keyError) Error() string { return "the key " + cleanText(e.file) + " " + e.reason }

func (e *keyError) Unwrap() error { return e.err }

// maxText bounds how much of what a server says is shown.
const maxText = 400

// cleanText returns text of unknown origin as one short line that a terminal shows as it is.
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
