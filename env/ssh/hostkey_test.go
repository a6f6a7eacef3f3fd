package ssh

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func TestHostKey(t *testing.T) {
	key := newKey(t, "ed25519")
	ed, ed2, ca := newKey(t, "ed25519"), newKey(t, "ed25519"), newKey(t, "ed25519")
	ec := newKey(t, "ecdsa")
	certSigner := func(c *gossh.Certificate) gossh.Signer {
		s, err := gossh.NewCertSigner(c, ed.signer)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := certSigner(certificate(t, ed.public(), gossh.HostCert, "127.0.0.1", ca))
	strange := certSigner(certificate(t, ed.public(), gossh.HostCert, "elsewhere", ca))
	own := "[127.0.0.1]:PORT "
	for name, tc := range map[string]struct {
		keys   []gossh.Signer // ed and ec if nil
		known  string
		config string
		accept bool
		kind   HostKeyKind
		want   []string // parts of the error
		added  string   // known_hosts afterwards
	}{
		"known":           {known: own + authorized(ed.public())},
		"known, hashed":   {known: "HASH " + authorized(ed.public())},
		"the second type": {known: own + authorized(ec.public())},
		"one of two keys": {known: own + authorized(ed2.public()) + own + authorized(ed.public())},
		"known by an alias": {
			known: "the.alias " + authorized(ed.public()), config: "HostKeyAlias The.Alias",
		},
		"known by a pattern": {known: "[127.0.0.*]:PORT,!x " + authorized(ed.public())},
		"known to all users": {known: "global"},
		"unknown": {
			kind: HostKeyUnknown,
			want: []string{"[127.0.0.1]:PORT is not known", "ssh-ed25519 " +
				gossh.FingerprintSHA256(ed.public()), "ssh -p PORT 127.0.0.1", "known_hosts"},
		},
		"unknown, as only another port is known": {
			known: "127.0.0.1 " + authorized(ed.public()), kind: HostKeyUnknown,
		},
		"unknown, as the pattern excludes it": {
			known: "[127.0.0.*]:PORT,![127.0.0.1]:PORT " + authorized(ed.public()), kind: HostKeyUnknown,
		},
		"unknown, as only a certificate's key is there": {
			known: "@cert-authority " + own + authorized(ed.public()), kind: HostKeyUnknown,
		},
		"changed": {
			known: "\n" + own + authorized(ed2.public()), kind: HostKeyChanged,
			want: []string{
				gossh.FingerprintSHA256(ed.public()), gossh.FingerprintSHA256(ed2.public()),
				"known_hosts:2",
			},
		},
		"changed, and new ones are taken": {
			known: own + authorized(ed2.public()), accept: true, kind: HostKeyChanged,
			added: own + authorized(ed2.public()),
		},
		"changed, and the configuration takes new ones": {
			known: own + authorized(ed2.public()), config: "StrictHostKeyChecking accept-new",
			kind: HostKeyChanged,
		},
		"revoked": {
			known: own + authorized(ed.public()) + "@revoked * " + authorized(ed.public()),
			kind:  HostKeyRevoked, want: []string{"known_hosts:2"},
		},
		"revoked, and new ones are taken": {
			known: "@revoked * " + authorized(ed.public()), accept: true, kind: HostKeyRevoked,
		},
		"no key of a known type": {
			keys: []gossh.Signer{ed.signer}, known: own + authorized(ec.public()), accept: true,
			kind: HostKeyTypes,
			want: []string{
				"ecdsa-sha2-nistp256 " + gossh.FingerprintSHA256(ec.public()), "known_hosts:1",
				"offers only ssh-ed25519",
			},
		},
		"new": {accept: true, added: own + authorized(ed.public())},
		"new, after text": {
			accept: true, known: "# text", added: "# text\n" + own + authorized(ed.public()),
		},
		"bad lines": {known: "x\n@what * " + authorized(ed2.public()) + own + "ssh-ed25519 AAAA\n" +
			own + authorized(ed.public())},
		"a certificate": {
			keys: []gossh.Signer{good}, known: "@cert-authority [127.0.0.1]:PORT " + authorized(ca.public()),
		},
		"a certificate and new keys": {
			keys: []gossh.Signer{good, ed.signer}, known: "@cert-authority other " + authorized(ca.public()),
			accept: true,
			added:  "@cert-authority other " + authorized(ca.public()) + own + authorized(ed.public()),
		},
		"a certificate for another host": {
			keys: []gossh.Signer{strange}, known: "@cert-authority * " + authorized(ca.public()),
			accept: true, kind: HostKeyCert, want: []string{"principal"},
		},
		"a certificate of another authority": {
			keys: []gossh.Signer{good}, known: "@cert-authority * " + authorized(ed2.public()),
			kind: HostKeyCert, want: []string{"no authorities"},
		},
		"a certificate of a revoked authority": {
			keys:  []gossh.Signer{good},
			known: "@cert-authority * " + authorized(ca.public()) + "@revoked * " + authorized(ca.public()),
			kind:  HostKeyRevoked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			if tc.keys == nil {
				tc.keys = []gossh.Signer{ed.signer, ec.signer}
			}
			s := newServer(t, serverConfig{keys: tc.keys, users: []gossh.PublicKey{key.public()}})
			fill := strings.NewReplacer("PORT", s.port, "HASH",
				knownhosts.HashHostname("[127.0.0.1]:"+s.port)).Replace
			m.write(t, "id_ed25519", key.private(t, ""))
			if tc.config != "" {
				m.write(t, "config", tc.config)
			}
			if tc.known == "global" {
				m.write(t, "config", "GlobalKnownHostsFile "+m.write(t, "global", s.known(ed.public())))
			} else if tc.known != "" {
				m.write(t, "known_hosts", fill(tc.known))
			}
			err := m.connect(t, Target{Host: s.String(), AcceptNew: tc.accept})
			if tc.added != "" {
				if diff := cmp.Diff(fill(tc.added), m.read(t, "known_hosts")); diff != "" {
					t.Error("known_hosts afterwards:", diff)
				}
			}
			if tc.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var bad *HostKeyError
			if !errors.As(err, &bad) || bad.Kind != tc.kind {
				t.Fatalf("got the error %v, want a HostKeyError of the kind %q", err, tc.kind)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), fill(part)) {
					t.Errorf("the error %q lacks %q", err, fill(part))
				}
			}
			if s.names() != "" {
				t.Error("the client logged in")
			}
		})
	}
}

func TestAcceptedKeyStored(t *testing.T) {
	key, ed, changed := newKey(t, "ed25519"), newKey(t, "ed25519"), newKey(t, "ed25519")
	for name, tc := range map[string]struct{ config, hosts string }{
		"in the file":           {},
		"in a file, hashed":     {config: "HashKnownHosts yes"},
		"in the first file":     {config: "UserKnownHostsFile HOME/new/first HOME/second"},
		"in memory":             {config: "UserKnownHostsFile none"},
		"in a named file":       {hosts: "named"},
		"in no file, by Target": {hosts: os.DevNull},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			s := newServer(t, serverConfig{
				keys: []gossh.Signer{ed.signer}, users: []gossh.PublicKey{key.public()},
			})
			m.write(t, "id_ed25519", key.private(t, ""))
			if tc.config != "" {
				m.write(t, "config", strings.ReplaceAll(tc.config, "HOME", m.home))
			}
			hosts := tc.hosts
			if hosts == "named" {
				hosts = filepath.Join(m.home, "dir", "named")
			}
			var notes []string
			r := m.route(t, Target{
				Host: s.String(), AcceptNew: true, KnownHosts: hosts,
				Warn: func(line string) { notes = append(notes, line) },
			})
			for range 2 {
				if err := r.try(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if len(notes) != 1 || !strings.Contains(notes[0], gossh.FingerprintSHA256(ed.public())) {
				t.Errorf("got the notes %q, want one with the fingerprint", notes)
			}
			check, err := r.newHostCheck(r.hops[0])
			if err != nil {
				t.Fatal(err)
			}
			var bad *HostKeyError
			if err := check.check("", nil, changed.public()); !errors.As(err, &bad) ||
				bad.Kind != HostKeyChanged {
				t.Errorf("another key afterwards: got the error %v", err)
			}
			if strings.Contains(tc.config, "Hash") && strings.Contains(m.read(t, "known_hosts"),
				"127.0.0.1") {
				t.Error("the name of the host is not hashed")
			}
		})
	}
}

func TestConcurrentAcceptedKeys(t *testing.T) {
	m := newHome(t)
	const n = 8
	keys := make([]sshKey, n)
	var all sync.WaitGroup
	for i := range n {
		keys[i] = newKey(t, "ed25519")
		all.Go(func() {
			r := &route{}
			h := &hop{
				knownAddress: fmt.Sprintf("host%d:22", i),
				userKnown:    []string{m.dot("new/known_hosts")}, acceptNew: true,
			}
			check, err := r.newHostCheck(h)
			if err == nil {
				err = check.check("", nil, keys[i].public())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	found, err := readKnownHosts([]string{m.dot("new/known_hosts")},
		func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := found.check(fmt.Sprintf("host%d:22", i), &net.TCPAddr{}, keys[i].public()); err != nil {
			t.Errorf("host%d: %v", i, err)
		}
	}
	for _, name := range []string{"new", "new/known_hosts"} {
		info, err := os.Stat(m.dot(name))
		if err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestUnusableKnownHosts(t *testing.T) {
	m := newHome(t)
	for name, target := range map[string]Target{
		"missing":     {KnownHosts: m.dot("missing")},
		"a directory": {KnownHosts: m.home, AcceptNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			target.Host = "h"
			var bad *ConfigError
			if err := target.Validate(); !errors.As(err, &bad) || bad.Field != "known-hosts" {
				t.Errorf("got the error %v", err)
			}
		})
	}
}

func TestHostKeyOfLaterExchange(t *testing.T) {
	m := newHome(t)
	first, other := newKey(t, "ed25519").public(), newKey(t, "ed25519").public()
	h := &hop{knownAddress: "h:22", userKnown: []string{m.dot("known_hosts")}, acceptNew: true}
	start := func() *hostCheck {
		t.Helper()
		check, err := (&route{}).newHostCheck(h)
		if err != nil {
			t.Fatal(err)
		}
		return check
	}
	late := start()
	check := start()
	if err := check.check("", nil, first); err != nil {
		t.Fatal(err)
	}
	var changed *HostKeyError
	if err := late.check("", nil, other); !errors.As(err, &changed) || changed.Kind != HostKeyChanged {
		t.Errorf("another key, after another connection has added one: got the error %v", err)
	}
	if err := start().check("", nil, first); err != nil || strings.Count(m.read(t, "known_hosts"),
		"\n") != 1 {
		t.Errorf("the same key again: got the error %v and the file %q", err, m.read(t, "known_hosts"))
	}
	// The connection that has accepted a key does not depend on the file any more.
	m.write(t, "known_hosts", "h "+authorized(other))
	if err := check.check("", nil, first); err != nil {
		t.Errorf("the key that was accepted: got the error %v", err)
	}
	if err := check.check("", nil, other); err == nil {
		t.Error("a connection has taken two keys")
	}
}
