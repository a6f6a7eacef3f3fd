package ssh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// DefaultDialTimeout bounds the connection to each host, unless Target or the ssh_config sets
	// another time.
	DefaultDialTimeout = 15 * time.Second

	// maxHops bounds the hosts of a route.
	maxHops = 8

	// A host that is silent for this time, with as many unanswered requests, is lost.
	defaultAliveInterval = 10 * time.Second
	defaultAliveCount    = 1
)

// Target names a host and how to log in to it. Values that it leaves open come from the ssh_config,
// as the installed OpenSSH client reads it; without a client they have their defaults. Login is by
// key only.
type Target struct {
	// Host is [user@]host[:port]. The host may be an alias of the ssh_config; an IPv6 address with
	// a port stands in brackets. User and port have precedence over those of the ssh_config.
	Host string
	// ConfigFile replaces ~/.ssh/config and /etc/ssh/ssh_config; os.DevNull reads none.
	ConfigFile string
	// Identities are files of private keys, or of public keys whose private ones ssh-agent has.
	// They are tried before those of the ssh_config, on jump hosts too.
	Identities []string
	// KnownHosts is a file that replaces all other known_hosts files, for jump hosts too.
	KnownHosts string
	// AcceptNew adds the key of an unknown host to the first known_hosts file, as
	// StrictHostKeyChecking=accept-new does. A changed key is an error all the same.
	AcceptNew bool
	// Passphrase returns the passphrase of a key file. Connect calls it when a server accepts the
	// key, up to three times; the time that it takes does not count, and it has to end with ctx.
	// Its result is overwritten after use. With nil, an encrypted key is an error.
	Passphrase func(ctx context.Context, file string) ([]byte, error)
	// Timeout bounds connection and login to each host; 0 means ConnectTimeout of the ssh_config,
	// or DefaultDialTimeout.
	Timeout time.Duration
	// Warn, if set, is called with one line for each unexpected condition that is no error.
	Warn func(line string)
}

// Validate reports the first invalid field of t, as a *ConfigError. It reads the files that t
// names, and connects to no host.
func (t Target) Validate() error {
	_, err := resolve(context.Background(), t)
	return err
}

// hop is a host on a route, with all that is needed to log in to it.
type hop struct {
	// alias is the host as it was named.
	alias            string
	user, host, port string
	// knownAddress is the host:port that is looked up in known_hosts files.
	knownAddress string
	// identities are key files in the order in which they are tried.
	identities   []identityFile
	certificates []string
	// identitiesOnly leaves out the other keys of the agent.
	identitiesOnly bool
	// agent is the socket of ssh-agent; it may be empty.
	agent string
	// userKnown and globalKnown are known_hosts files. New keys go to the first of userKnown.
	userKnown, globalKnown []string
	acceptNew, hashNames   bool
	timeout                time.Duration
	// The connection is lost after aliveCount times aliveInterval of silence.
	aliveInterval time.Duration
	aliveCount    int
	// proxyCommand makes the connection with its stdin and stdout; it may be empty.
	proxyCommand string
}

// identityFile is the name of a key file.
type identityFile struct {
	path string
	// named means that the caller named it, so that it has to exist.
	named bool
}

// address returns host:port.
func (h *hop) address() string { return net.JoinHostPort(h.host, h.port) }

// knownAs returns the name of the host in known_hosts files.
func (h *hop) knownAs() string { return knownhosts.Normalize(h.knownAddress) }

func (h *hop) String() string { return h.user + "@" + h.address() }

// route is the way to a host. Its methods may be called concurrently.
type route struct {
	// hops are the jump hosts in their order, then the host.
	hops       []*hop
	passphrase func(ctx context.Context, file string) ([]byte, error)
	report     func(line string)

	// prompting is held during a call of passphrase, so that no prompt is repeated.
	prompting chan struct{}
	mu        sync.Mutex
	// opened are decrypted keys, by the digest of their files.
	opened map[[sha256.Size]byte]gossh.Signer
	// pinned are accepted host keys that no file keeps, by the name of the host.
	pinned map[string]gossh.PublicKey
}

// String returns user@host:port.
func (r *route) String() string { return r.hops[len(r.hops)-1].String() }

// warn reports an unexpected condition that is no error.
func (r *route) warn(line string) {
	if r.report != nil {
		r.report(cleanText(line))
	}
}

// resolve finds the route to the target.
func resolve(ctx context.Context, t Target) (*route, error) {
	r := &route{
		passphrase: t.Passphrase, report: t.Warn, prompting: make(chan struct{}, 1),
		opened: map[[sha256.Size]byte]gossh.Signer{}, pinned: map[string]gossh.PublicKey{},
	}
	if t.Host == "" {
		return nil, badConfig("host",
			"Target.Host is missing (set it to [user@]host[:port] or an alias of the ssh_config)")
	}
	if t.Timeout < 0 {
		return nil, badConfig("timeout", "%s is negative", t.Timeout)
	}
	for _, file := range t.Identities {
		if err := checkIdentity(file); err != nil {
			return nil, err
		}
	}
	if name := t.KnownHosts; name != "" && name != os.DevNull {
		_, err := readRegular(name, maxKnownHosts)
		if err != nil && (!t.AcceptNew || !errors.Is(err, fs.ErrNotExist)) {
			return nil, badConfig("known-hosts", "%s", cleanText(err.Error()))
		}
	}
	found := resolver{localFiles: findLocalFiles(), target: t, warn: r.warn, warned: map[string]bool{}}
	if err := found.add(ctx, t.Host, "host", nil, false); err != nil {
		return nil, err
	}
	r.hops = found.hops
	return r, nil
}

// readRegular returns the content of a regular file of at most limit bytes. It does not block on
// a FIFO.
func readRegular(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, &fs.PathError{Op: "read", Path: name, Err: env.ErrIsDir}
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: env.ErrNotRegular}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d KiB", limit>>10)}
	}
	return data, nil
}

// address is a parsed [user@]host[:port].
type address struct{ user, host, port string }

// parseAddress parses [user@]host[:port].
func parseAddress(s string) (address, error) {
	var a address
	rest := s
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		a.user, rest = s[:i], s[i+1:]
		if a.user == "" {
			return a, errors.New("no user before the @")
		}
	}
	switch {
	case strings.HasPrefix(rest, "["):
		host, port, ok := strings.Cut(rest[1:], "]")
		if _, err := netip.ParseAddr(host); !ok || err != nil {
			return a, errors.New("no IP address in the brackets")
		}
		a.host = host
		if port != "" {
			if a.port, ok = strings.CutPrefix(port, ":"); !ok || a.port == "" {
				return a, errors.New("only a port may follow the brackets, as in [::1]:22")
			}
		}
	case strings.Count(rest, ":") > 1:
		if _, err := netip.ParseAddr(rest); err != nil {
			return a, errors.New("more than one colon, and no IPv6 address")
		}
		a.host = rest
	default:
		host, port, ok := strings.Cut(rest, ":")
		if a.host, a.port = host, port; ok && port == "" {
			return a, errors.New("no port after the colon")
		}
	}
	if err := checkUser(a.user); a.user != "" && err != nil {
		return a, err
	}
	if err := checkHost(a.host); err != nil {
		return a, err
	}
	if a.port != "" {
		var err error
		a.port, err = checkPort(a.port)
		return a, err
	}
	return a, nil
}

// checkHost rejects host names that a command line could take for something else.
func checkHost(host string) error {
	switch {
	case host == "":
		return errors.New("the host name is empty")
	case len(host) > 255:
		return errors.New("the host name is too long")
	case strings.HasPrefix(host, "-"):
		return errors.New("the host name starts with a hyphen")
	}
	for _, r := range host {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-:%", r) {
			return errors.New("the host name has the invalid character " + strconv.QuoteRune(r))
		}
	}
	return nil
}

// checkUser rejects user names that a command line could take for something else.
func checkUser(name string) error {
	switch {
	case name == "" || len(name) > 255:
		return errors.New("the user name is empty or too long")
	case strings.HasPrefix(name, "-"):
		return errors.New("the user name starts with a hyphen")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || strings.ContainsRune(" '\"`;&<>|(){}$*?[]!#~^", r) {
			return errors.New("the user name has the invalid character " + strconv.QuoteRune(r))
		}
	}
	return nil
}

// checkPort returns a port without leading zeros.
func checkPort(port string) (string, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New(strconv.Quote(port) + " is not a port (a number from 1 to 65535)")
	}
	return strconv.FormatUint(n, 10), nil
}

// localUser returns the name of the user on this machine, or an empty string.
func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username[strings.LastIndexByte(u.Username, '\\')+1:]
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
}
