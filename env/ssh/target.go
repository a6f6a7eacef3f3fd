package ssh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	gossh "golang.org/x/crypto/ssh"
)

// DefaultDialTimeout bounds the way to each host, unless Target or the ssh_config say otherwise.
const DefaultDialTimeout = 15 * time.Second

// maxHops bounds how many hosts there are on the way, the last one included.
const maxHops = 8

// Target says which host to log in to, and how. What it leaves open is read from the ssh_config, as the program ssh does.
// Keys are the only way to log in.
type Target struct {
	// Host is [user@]host[:port]. The host may be an alias of the ssh_config; an IPv6 address with a port stands in
	// brackets. What it says goes before what the ssh_config says.
	Host string
	// ConfigFile is read instead of ~/.ssh/config and /etc/ssh/ssh_config; os.DevNull means that none is read.
	ConfigFile string
	// Identities are files of private keys, or of public keys whose private ones the ssh-agent has. They are tried before
	// those of the ssh_config, on each host of the way.
	Identities []string
	// KnownHosts is a file that takes the place of all the known_hosts files of the ssh_config and of the machine, for each
	// host of the way.
	KnownHosts string
	// AcceptNew adds the key of a host that is not known to the first known_hosts file, as StrictHostKeyChecking=accept-new
	// does. A key that has changed is an error all the same.
	AcceptNew bool
	// Passphrase returns the passphrase of a key file. It is asked in Connect only, when a server has said that it takes the key, and again
	// after a wrong answer, three times in all; the time that it takes does not count, and it has to end with ctx. Its
	// result is overwritten after use. nil means that nobody can be asked, which is an error at once.
	Passphrase func(ctx context.Context, file string) ([]byte, error)
	// Timeout bounds the connection to each host of the way, with the login; 0 means ConnectTimeout of the ssh_config, or
	// DefaultDialTimeout.
	Timeout time.Duration
	// Note, if set, gets one line for each thing that is not as one might expect and is no error.
	Note func(line string)
}

// Check returns why the target cannot be meant, a *ConfigError. It reads the files that it names, and asks no host.
func (t Target) Check() error {
	_, err := resolve(t)
	return err
}

// hop is a host on the way, with all that is needed to log in there.
type hop struct {
	// alias is the host as it was named.
	alias            string
	user, host, port string
	// knownAs is the name of the host in known_hosts files.
	knownAs string
	// identities are key files in the order in which they are tried.
	identities   []identityFile
	certificates []string
	// only says that an agent's other keys are not tried.
	only bool
	// agent is the socket of the ssh-agent; it may be empty.
	agent string
	// userKnown and globalKnown are known_hosts files. New keys go to the first of userKnown.
	userKnown, globalKnown []string
	acceptNew, hash        bool
	timeout                time.Duration
}

// identityFile is the name of a key file.
type identityFile struct {
	path string
	// named says that the caller named it, so that it has to be there.
	named bool
}

// address returns host:port.
func (h *hop) address() string { return net.JoinHostPort(h.host, h.port) }

func (h *hop) String() string { return h.user + "@" + h.address() }

// route is the way to a host. Its methods may be called concurrently.
type route struct {
	// hops are the jump hosts in their order, then the host.
	hops []*hop
	ask  func(ctx context.Context, file string) ([]byte, error)
	say  func(line string)

	// asking is held while somebody is asked for a passphrase, so that nobody is asked twice.
	asking chan struct{}
	mu     sync.Mutex
	// opened are keys whose passphrase was asked for, by the digest of their files.
	opened map[[sha256.Size]byte]gossh.Signer
	// pinned are keys of hosts that were accepted and that no file takes, by the name of the host.
	pinned map[string][]gossh.PublicKey
}

// String returns user@host:port.
func (r *route) String() string { return r.hops[len(r.hops)-1].String() }

// note tells the caller of something that is no error.
func (r *route) note(line string) { r.say(cleanText(line)) }

// machine is where a machine has its files.
type machine struct {
	// home is the user's home folder; it may be empty.
	home string
	// config and known are the files for all users.
	config string
	known  []string
}

func thisMachine() machine {
	m := machine{config: "/etc/ssh/ssh_config", known: []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}}
	if programs := os.Getenv("ProgramData"); filepath.Separator == '\\' && programs != "" {
		m.config = filepath.Join(programs, "ssh", "ssh_config")
		m.known = []string{filepath.Join(programs, "ssh", "ssh_known_hosts")}
	}
	if home, err := os.UserHomeDir(); err == nil {
		m.home = home
	}
	return m
}

// dot returns the name of a file in ~/.ssh, or nothing if there is no home.
func (m machine) dot(name string) string {
	if m.home == "" {
		return ""
	}
	return filepath.Join(m.home, ".ssh", name)
}

// resolve reads the files that say how to get to the target.
func resolve(t Target) (*route, error) { return thisMachine().resolve(t) }

func (m machine) resolve(t Target) (*route, error) {
	r := &route{
		ask: t.Passphrase, say: t.Note, asking: make(chan struct{}, 1),
		opened: map[[sha256.Size]byte]gossh.Signer{}, pinned: map[string][]gossh.PublicKey{},
	}
	if r.say == nil {
		r.say = func(string) {}
	}
	if t.Timeout < 0 {
		return nil, badConfig("timeout", "a negative time")
	}
	for _, file := range t.Identities {
		if err := checkIdentity(file); err != nil {
			return nil, err
		}
	}
	if err := t.checkKnownHosts(); err != nil {
		return nil, err
	}
	f := finder{machine: m, target: t, note: r.note, noted: map[string]bool{}}
	if err := f.add(t.Host, "host", nil, false); err != nil {
		return nil, err
	}
	r.hops = f.hops
	return r, nil
}

// checkKnownHosts reports whether the file for known hosts, if one is named, is there or will be made.
func (t Target) checkKnownHosts() error {
	if t.KnownHosts == "" || t.KnownHosts == os.DevNull {
		return nil
	}
	_, err := readRegular(t.KnownHosts, maxKnownHosts)
	if err != nil && (!t.AcceptNew || !errors.Is(err, fs.ErrNotExist)) {
		return badConfig("known-hosts", "%s", cleanText(err.Error()))
	}
	return nil
}

// address is a host as people write it.
type address struct{ user, host, port string }

// parseAddress reads [user@]host[:port].
func parseAddress(s string) (address, error) {
	var a address
	rest := s
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		a.user, rest = s[:i], s[i+1:]
		if a.user == "" {
			return a, errors.New("there is no user before the @")
		}
	}
	switch {
	case strings.HasPrefix(rest, "["):
		host, port, ok := strings.Cut(rest[1:], "]")
		addr, err := netip.ParseAddr(host)
		if !ok || err != nil || !addr.Is6() {
			return a, errors.New("what stands in brackets is no IPv6 address")
		}
		a.host = host
		if port != "" {
			if a.port, ok = strings.CutPrefix(port, ":"); !ok || a.port == "" {
				return a, errors.New("after the brackets there is room for a port only, as in [::1]:22")
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
			return a, errors.New("there is no port after the colon")
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

// checkHost reports whether a name can be that of a host.
func checkHost(host string) error {
	switch {
	case host == "":
		return errors.New("there is no name of a host")
	case len(host) > 255:
		return errors.New("the name of the host is too long")
	case strings.HasPrefix(host, "-"):
		return errors.New("the name of a host does not begin with a hyphen")
	}
	for _, r := range host {
		if unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune(`/\@[],"'!*?|#`+"`", r) {
			return errors.New("the name of a host has no character " + strconv.QuoteRune(r))
		}
	}
	return nil
}

// checkUser reports whether a name can be that of a user.
func checkUser(name string) error {
	if name == "" || len(name) > 255 {
		return errors.New("the name of the user is empty or too long")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return errors.New("the name of a user has no character " + strconv.QuoteRune(r))
		}
	}
	return nil
}

// checkPort returns a port without leading zeros.
func checkPort(port string) (string, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New(strconv.Quote(port) + " is no port; it takes a number from 1 to 65535")
	}
	return strconv.FormatUint(n, 10), nil
}

// localUser is the name of the user here, or empty.
func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username[strings.LastIndexByte(u.Username, '\\')+1:]
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
}
