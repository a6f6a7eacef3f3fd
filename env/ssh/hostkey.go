package ssh

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

const (
	// maxKnownHosts bounds a known_hosts file, and maxKnownLine one of its lines.
	maxKnownHosts = 16 << 20
	maxKnownLine  = 60 << 10
	// maxBadLines bounds the invalid lines of a file, and maxWarnedLines those that are reported.
	maxBadLines    = 100
	maxWarnedLines = 3
)

// hostKeys are the keys in known_hosts files.
type hostKeys struct {
	check gossh.HostKeyCallback
	// names maps the files that check was made from to those that they are copies of.
	names map[string]string
	// authorities are the lines marked @cert-authority, as file:line. check accepts their keys as
	// those of hosts.
	authorities map[string]bool
}

// readKnownHosts reads known_hosts files; missing ones are empty.
func readKnownHosts(names []string, warn func(string)) (*hostKeys, error) {
	k := &hostKeys{names: map[string]string{}, authorities: map[string]bool{}}
	var files []string
	for _, name := range names {
		if name == os.DevNull {
			continue
		}
		data, err := readRegular(name, maxKnownHosts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		file := name
		if err == nil {
			file, err = validKnownHosts(name, data, warn)
		}
		if err != nil {
			return nil, badConfig("known-hosts", "%s", cleanText(err.Error()))
		}
		if file != name {
			defer os.Remove(file) //nolint:errcheck // the system cleans its temporary directory
		}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if bytes.HasPrefix(bytes.TrimSpace(line), []byte("@cert-authority")) {
				k.authorities[file+":"+strconv.Itoa(i+1)] = true
			}
		}
		k.names[file] = name
		files = append(files, file)
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, badConfig("known-hosts", "%s", cleanText(err.Error()))
	}
	k.check = db.HostKeyCallback()
	return k, nil
}

// validKnownHosts returns a file with the valid lines of a known_hosts file: the file itself, or
// a temporary one in which the invalid lines, with which the library rejects a file, are blank.
func validKnownHosts(name string, data []byte, warn func(string)) (string, error) {
	lines := bytes.Split(data, []byte("\n"))
	file := name
	var err error
	for bad := range maxBadLines {
		n, reason := invalidLine(file, lines)
		if n == 0 {
			return file, nil
		}
		lines[n-1] = nil
		if bad < maxWarnedLines {
			warn(fmt.Sprintf("%s:%d: the line is ignored: %s", name, n, reason))
		} else if bad == maxWarnedLines {
			warn(name + ": more lines are ignored")
		}
		if file, err = writeTemporary(file, name, bytes.Join(lines, []byte("\n"))); err != nil {
			return "", err
		}
	}
	_ = os.Remove(file) // the error is more important
	return "", fmt.Errorf("%s: more than %d invalid lines", name, maxBadLines)
}

// invalidLine returns the number of the first line that the library rejects, and why, or 0.
func invalidLine(file string, lines [][]byte) (int, string) {
	if i := slices.IndexFunc(lines, func(l []byte) bool { return len(l) > maxKnownLine }); i >= 0 {
		return i + 1, "it is too long"
	}
	_, err := knownhosts.New(file)
	if err == nil {
		return 0, ""
	}
	rest, _ := strings.CutPrefix(err.Error(), "knownhosts: "+file+":")
	number, reason, _ := strings.Cut(rest, ": ")
	if n, nerr := strconv.Atoi(number); nerr == nil && n > 0 && n <= len(lines) {
		return n, strings.TrimPrefix(reason, "knownhosts: ")
	}
	return 0, "" // the error has no line: NewDB returns it again
}

// writeTemporary writes data into file, or into a new temporary one if file is the original.
func writeTemporary(file, original string, data []byte) (string, error) {
	if file == original {
		f, err := os.CreateTemp("", "known_hosts-")
		if err != nil {
			return "", err
		}
		_ = f.Close() // nothing was written
		file = f.Name()
	}
	return file, os.WriteFile(file, data, 0o600)
}

// noKey is a key that no host has.
type noKey struct{}

func (noKey) Type() string                          { return "none" }
func (noKey) Marshal() []byte                       { return []byte("none") }
func (noKey) Verify([]byte, *gossh.Signature) error { return errors.New("no key") }

// known returns the keys of a host, or the authorities that sign certificates for it.
func (k *hostKeys) known(address string, authorities bool) []xknownhosts.KnownKey {
	var unknown *xknownhosts.KeyError
	if !errors.As(k.check(address, &net.TCPAddr{}, noKey{}), &unknown) {
		return nil
	}
	return slices.DeleteFunc(unknown.Want, func(key xknownhosts.KnownKey) bool {
		return k.authorities[fmt.Sprintf("%s:%d", key.Filename, key.Line)] != authorities
	})
}

// hostCheck decides whether the key of a host is trusted, for one connection.
type hostCheck struct {
	route *route
	hop   *hop
	keys  *hostKeys

	mu sync.Mutex
	// accepted is the trusted key. A later key exchange has to show the same.
	accepted gossh.PublicKey
	// err is why the key was rejected.
	err error
}

// newHostCheck reads the known_hosts files for a host.
func (r *route) newHostCheck(h *hop) (*hostCheck, error) {
	keys, err := readKnownHosts(slices.Concat(h.userKnown, h.globalKnown), r.warn)
	return &hostCheck{route: r, hop: h, keys: keys}, err
}

// known returns the trusted keys of the host.
func (c *hostCheck) known() []xknownhosts.KnownKey {
	keys := c.keys.known(c.hop.knownAddress, false)
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	if key := c.route.pinned[c.hop.knownAs()]; key != nil {
		keys = append(keys, xknownhosts.KnownKey{Key: key})
	}
	return keys
}

// algorithms returns the host key algorithms to negotiate. A host shows a key of the first type
// that both sides support, which has to be a known one; of an unknown host any type is taken.
func (c *hostCheck) algorithms() []string {
	supported := gossh.SupportedAlgorithms().HostKeys
	isCert := func(algo string) bool { return strings.Contains(algo, "-cert-v01@") }
	var algos []string
	if len(c.keys.known(c.hop.knownAddress, true)) > 0 {
		for _, a := range supported {
			if isCert(a) {
				algos = append(algos, a)
			}
		}
	}
	known := c.known()
	for _, k := range known {
		wanted := []string{k.Key.Type()}
		if wanted[0] == gossh.KeyAlgoRSA {
			wanted = []string{gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256}
		}
		for _, a := range wanted {
			if !slices.Contains(algos, a) {
				algos = append(algos, a)
			}
		}
	}
	if len(known) > 0 {
		return algos
	}
	for _, a := range append([]string{gossh.KeyAlgoED25519}, supported...) {
		if !isCert(a) && !slices.Contains(algos, a) {
			algos = append(algos, a)
		}
	}
	return algos
}

// check is a gossh.HostKeyCallback.
func (c *hostCheck) check(_ string, _ net.Addr, key gossh.PublicKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.accepted != nil {
		if bytes.Equal(c.accepted.Marshal(), key.Marshal()) {
			return nil
		}
		c.err = c.reject(HostKeyChanged, key, xknownhosts.KnownKey{Key: c.accepted})
		return c.err
	}
	err := c.judge(key)
	var unknown *HostKeyError
	if errors.As(err, &unknown) && unknown.Kind == HostKeyUnknown && c.hop.acceptNew {
		err = c.accept(key)
	}
	if err != nil {
		c.err = err
		return err
	}
	c.accepted = key
	return nil
}

// failure returns why the host's key was rejected, or nil.
func (c *hostCheck) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// judge returns nil if a key is trusted, or a *HostKeyError.
func (c *hostCheck) judge(key gossh.PublicKey) error {
	cert, isCert := key.(*gossh.Certificate)
	revocable := []gossh.PublicKey{key}
	if isCert {
		revocable = append(revocable, cert.Key, cert.SignatureKey)
	}
	for _, k := range revocable {
		var revoked *xknownhosts.RevokedError
		if errors.As(c.keys.check(c.hop.knownAddress, &net.TCPAddr{}, k), &revoked) {
			return c.reject(HostKeyRevoked, key, revoked.Revoked)
		}
	}
	if isCert {
		if err := c.keys.check(c.hop.knownAddress, &net.TCPAddr{}, key); err != nil {
			e := c.reject(HostKeyCert, cert.Key)
			e.Reason = strings.TrimPrefix(err.Error(), "ssh: ")
			return e
		}
		return nil
	}
	known := c.known()
	for _, k := range known {
		if bytes.Equal(k.Key.Marshal(), key.Marshal()) {
			return nil
		}
	}
	if len(known) > 0 {
		return c.reject(HostKeyChanged, key, known...)
	}
	return c.reject(HostKeyUnknown, key)
}

// reject returns the error for a key that is not trusted.
func (c *hostCheck) reject(
	kind HostKeyKind, key gossh.PublicKey, known ...xknownhosts.KnownKey,
) *HostKeyError {
	e := &HostKeyError{Host: c.hop.knownAs(), Kind: kind, File: c.file()}
	if key != nil {
		e.Type, e.Fingerprint = key.Type(), gossh.FingerprintSHA256(key)
	}
	for _, k := range known {
		e.Known = append(e.Known, KnownKey{
			File: c.keys.names[k.Filename], Line: k.Line, Type: k.Key.Type(),
			Fingerprint: gossh.FingerprintSHA256(k.Key),
		})
	}
	return e
}

// file returns where a new key is added, or an empty string.
func (c *hostCheck) file() string {
	if len(c.hop.userKnown) == 0 || c.hop.userKnown[0] == os.DevNull {
		return ""
	}
	return c.hop.userKnown[0]
}

// accept adds the key of an unknown host.
func (c *hostCheck) accept(key gossh.PublicKey) error {
	// Another process may have added one since.
	keys, err := readKnownHosts(slices.Concat(c.hop.userKnown, c.hop.globalKnown), func(string) {})
	if err != nil {
		return err
	}
	c.keys = keys
	err = c.judge(key)
	var unknown *HostKeyError
	if !errors.As(err, &unknown) || unknown.Kind != HostKeyUnknown {
		return err
	}
	name, shown := c.hop.knownAs(), key.Type()+" "+gossh.FingerprintSHA256(key)
	file := c.file()
	if file == "" {
		c.route.mu.Lock()
		c.route.pinned[name] = key
		c.route.mu.Unlock()
		c.route.warn(fmt.Sprintf("the host %s is new: its key %s is trusted from now on, but no file "+
			"keeps it", name, shown))
		return nil
	}
	if err := appendKnownHost(file, name, key, c.hop.hashNames); err != nil {
		return badConfig("known-hosts", "add the key of %s: %v", name, err)
	}
	c.route.warn(fmt.Sprintf("the host %s is new: its key %s was added to %s", name, shown, file))
	return nil
}

// noCommonType returns the error for a host that has no key of a known type, or nil if the
// handshake failed for another reason.
func (c *hostCheck) noCommonType(err error) error {
	var differ *gossh.AlgorithmNegotiationError
	known := c.known()
	if !errors.As(err, &differ) || differ.What != "host key" || len(known) == 0 {
		return nil
	}
	e := c.reject(HostKeyTypes, nil, known...)
	e.Reason = "and the host offers only " + strings.Join(differ.RequestedAlgorithms, ", ")
	return e
}

// appendKnownHost adds a line to a known_hosts file, in one write, so that lines of several
// programs do not mix.
func appendKnownHost(file, name string, key gossh.PublicKey, hash bool) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if hash {
		name = xknownhosts.HashHostname(name)
	}
	line := name + " " + key.Type() + " " + base64.StdEncoding.EncodeToString(key.Marshal()) + "\n"
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // for the returns with another error
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	return f.Close()
}
