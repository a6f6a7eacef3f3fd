package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	gossh "golang.org/x/crypto/ssh"
)

// hostCheck decides whether a host is the one that it should be. It is for one connection.
type hostCheck struct {
	route *route
	hop   *hop
	lines []*knownLine

	mu sync.Mutex
	// accepted is the key that was accepted. A host shows its key again from time to time, and it has to be the same.
	accepted gossh.PublicKey
	// err is why the host's key was not accepted.
	err error
}

// newHostCheck reads what is known about a host.
func (r *route) newHostCheck(h *hop) (*hostCheck, error) {
	c := &hostCheck{route: r, hop: h}
	return c, c.read(r.note)
}

// read takes the lines of the known_hosts files, and keys that were accepted before.
func (c *hostCheck) read(note func(string)) error {
	lines, err := readKnownHosts(slices.Concat(c.hop.userKnown, c.hop.globalKnown), note)
	if err != nil {
		return err
	}
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	for _, key := range c.route.pinned[c.hop.knownAs] {
		lines = append(lines, &knownLine{hosts: []string{c.hop.knownAs}, key: key})
	}
	c.lines = lines
	return nil
}

// about returns the lines about the host that have a marker, or none.
func (c *hostCheck) about(mark string) []*knownLine {
	var found []*knownLine
	for _, l := range c.lines {
		if l.mark == mark && l.matches(c.hop.knownAs) {
			found = append(found, l)
		}
	}
	return found
}

// algorithms returns which kinds of keys the host is asked for. A host has keys of several types, and shows one of the first
// type that both sides know, which has to be one that is in the known_hosts files. For a host that is not in there it is
// any type. Certificates are asked for if there is somebody who may sign them.
func (c *hostCheck) algorithms() []string {
	supported := gossh.SupportedAlgorithms().HostKeys
	isCert := func(algo string) bool { return strings.Contains(algo, "-cert-v01@") }
	var algos []string
	if len(c.about(markAuthority)) > 0 {
		for _, a := range supported {
			if isCert(a) {
				algos = append(algos, a)
			}
		}
	}
	known := c.about("")
	for _, l := range known {
		for _, a := range keyAlgorithms(l.key.Type()) {
			if !slices.Contains(algos, a) {
				algos = append(algos, a)
			}
		}
	}
	if len(known) > 0 {
		return algos
	}
	preferred := []string{gossh.KeyAlgoED25519}
	for _, a := range append(preferred, supported...) {
		if !isCert(a) && !slices.Contains(algos, a) {
			algos = append(algos, a)
		}
	}
	return algos
}

// keyAlgorithms returns the algorithms of a type of keys.
func keyAlgorithms(keyType string) []string {
	if keyType == gossh.KeyAlgoRSA {
		return []string{gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// check is a gossh.HostKeyCallback.
func (c *hostCheck) check(_ string, _ net.Addr, key gossh.PublicKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.accepted != nil {
		if bytes.Equal(c.accepted.Marshal(), key.Marshal()) {
			return nil
		}
		c.err = c.refuse(HostKeyChanged, key, &knownLine{key: c.accepted})
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

// failure returns why the host's key was not accepted, or nil.
func (c *hostCheck) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// judge returns why a key is not that of the host, or nil if it is.
func (c *hostCheck) judge(key gossh.PublicKey) error {
	if l := c.revoked(key); l != nil {
		return c.refuse(HostKeyRevoked, key, l)
	}
	if cert, ok := key.(*gossh.Certificate); ok {
		if err := c.judgeCert(cert); err != nil {
			e := c.refuse(HostKeyCert, cert.Key)
			e.Reason = strings.TrimPrefix(err.Error(), "ssh: ")
			return e
		}
		return nil
	}
	known := c.about("")
	for _, l := range known {
		if bytes.Equal(l.key.Marshal(), key.Marshal()) {
			return nil
		}
	}
	if len(known) > 0 {
		return c.refuse(HostKeyChanged, key, known...)
	}
	return c.refuse(HostKeyUnknown, key)
}

// revoked returns the line that revokes a key, or a certificate's key or the one that signed it.
func (c *hostCheck) revoked(key gossh.PublicKey) *knownLine {
	keys := [][]byte{key.Marshal()}
	if cert, ok := key.(*gossh.Certificate); ok {
		keys = append(keys, cert.Key.Marshal(), cert.SignatureKey.Marshal())
	}
	for _, l := range c.lines {
		for _, k := range keys {
			if l.mark == markRevoked && bytes.Equal(l.key.Marshal(), k) {
				return l
			}
		}
	}
	return nil
}

// judgeCert returns why a certificate is not good for the host.
func (c *hostCheck) judgeCert(cert *gossh.Certificate) error {
	checker := gossh.CertChecker{
		IsHostAuthority: func(signer gossh.PublicKey, _ string) bool {
			return slices.ContainsFunc(c.about(markAuthority), func(l *knownLine) bool {
				return bytes.Equal(l.key.Marshal(), signer.Marshal())
			})
		},
	}
	name := c.hop.knownAs
	if rest, ok := strings.CutPrefix(name, "["); ok {
		name, _, _ = strings.Cut(rest, "]:")
	}
	return checker.CheckHostKey(net.JoinHostPort(name, c.hop.port), nil, cert)
}

// refuse returns the error for a key that is not accepted.
func (c *hostCheck) refuse(kind HostKeyKind, key gossh.PublicKey, known ...*knownLine) *HostKeyError {
	e := &HostKeyError{Host: c.hop.knownAs, Kind: kind, file: c.file()}
	if key != nil {
		e.Type, e.Fingerprint = key.Type(), gossh.FingerprintSHA256(key)
	}
	for _, l := range known {
		e.Known = append(e.Known, l.known())
	}
	return e
}

// file is where a new key is added, or empty.
func (c *hostCheck) file() string {
	if len(c.hop.userKnown) == 0 || c.hop.userKnown[0] == os.DevNull {
		return ""
	}
	return c.hop.userKnown[0]
}

// accept adds the key of a host that is not known.
func (c *hostCheck) accept(key gossh.PublicKey) error {
	// Somebody else may have added one since.
	if err := c.read(func(string) {}); err != nil {
		return err
	}
	err := c.judge(key)
	var unknown *HostKeyError
	if !errors.As(err, &unknown) || unknown.Kind != HostKeyUnknown {
		return err
	}
	shown := key.Type() + " " + gossh.FingerprintSHA256(key)
	file := c.file()
	if file == "" {
		c.route.mu.Lock()
		c.route.pinned[c.hop.knownAs] = append(c.route.pinned[c.hop.knownAs], key)
		c.route.mu.Unlock()
		c.route.note(fmt.Sprintf("the host %s is new: its key %s counts from now on, but there is no file to keep it in", c.hop.knownAs, shown))
		return nil
	}
	if err := appendKnownHost(file, c.hop.knownAs, key, c.hop.hash); err != nil {
		return badConfig("known-hosts", "add the key of %s: %v", c.hop.knownAs, err)
	}
	c.route.note(fmt.Sprintf("the host %s is new: its key %s was added to %s", c.hop.knownAs, shown, file))
	return nil
}

// noCommonType returns what it means that a host and its known keys have no type in common, or nil if that is not why
// they do not agree.
func (c *hostCheck) noCommonType(err error) error {
	var differ *gossh.AlgorithmNegotiationError
	known := c.about("")
	if !errors.As(err, &differ) || differ.What != "host key" || len(known) == 0 {
		return nil
	}
	e := c.refuse(HostKeyTypes, nil, known...)
	e.Reason = "and the host offers only " + strings.Join(differ.RequestedAlgorithms, ", ")
	return e
}
