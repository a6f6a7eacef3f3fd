package ssh

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plan is the part of a hop that the tests compare.
type plan struct {
	To, KnownAs        string
	Keys, Certificates []string
	Only               bool
	Agent, Proxy       string
	User, Global       []string
	AcceptNew, Hash    bool
	Timeout, Alive     time.Duration
	AliveCount         int
}

// plans returns the hops of a route. Names in the home directory begin with ~.
func plans(m home, r *route) (all []plan) {
	short := func(names []string) (out []string) {
		for _, n := range names {
			out = append(out, filepath.ToSlash(strings.Replace(n, m.home, "~", 1)))
		}
		return out
	}
	for _, h := range r.hops {
		var keys []string
		for _, id := range h.identities {
			keys = append(keys, id.path)
		}
		all = append(all, plan{
			To: h.String(), KnownAs: h.knownAs(), Keys: short(keys), Certificates: short(h.certificates),
			Only:  h.identitiesOnly,
			Agent: strings.Join(short([]string{h.agent}), ""), Proxy: h.proxyCommand,
			User: short(h.userKnown), Global: short(h.globalKnown),
			AcceptNew: h.acceptNew, Hash: h.hashNames, Timeout: h.timeout, Alive: h.aliveInterval,
			AliveCount: h.aliveCount,
		})
	}
	return all
}

// needClient skips a test without an OpenSSH client.
func needClient(t *testing.T) {
	t.Helper()
	if _, ok := os.LookupEnv("SANDBOXAGENT_REQUIRE"); !ok && runtime.GOOS == "windows" {
		t.Skip("the values are those of Unix")
	}
}

func TestSettings(t *testing.T) {
	needClient(t)
	const keys = "IdentityFile ~/k\n"
	def := func(change func(*plan)) plan {
		p := plan{
			To: "me@h:22", KnownAs: "h", Keys: []string{"~/k"}, Agent: "/agent",
			User:    []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"},
			Global:  []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"},
			Timeout: DefaultDialTimeout,
			Alive:   defaultAliveInterval, AliveCount: defaultAliveCount,
		}
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		target Target
		config string // none if empty
		want   []plan
	}{
		"no file": {target: Target{Host: "me@h"}, want: []plan{def(func(p *plan) {
			p.Keys = []string{"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"}
		})}},
		"every setting": {
			target: Target{Host: "h"},
			config: `
Host h
  HostName %h.example.com
  User me
  Port 2222
  IdentityFile ~/.ssh/a
  IdentityFile "%d/b %r@%h:%p"
  IdentityFile ${KEYS}/c
  CertificateFile ~/cert
  IdentitiesOnly yes
  IdentityAgent /sock
  UserKnownHostsFile /k1 "/k 2"
  GlobalKnownHostsFile none
  StrictHostKeyChecking accept-new
  HashKnownHosts yes
  ConnectTimeout 7
  ServerAliveInterval 5
  ServerAliveCountMax 2
Match user me
  IdentityFile ~/.ssh/d
Match user you
  Port 3
`,
			want: []plan{{
				To: "me@h.example.com:2222", KnownAs: "[h.example.com]:2222",
				Keys:         []string{"~/.ssh/a", "~/b me@h.example.com:2222", "/keys/c", "~/.ssh/d"},
				Certificates: []string{"~/cert"}, Only: true, Agent: "/sock", User: []string{
					"/k1",
					"/k 2",
				}, AcceptNew: true, Hash: true,
				Timeout: 7 * time.Second, Alive: 5 * time.Second, AliveCount: 2,
			}},
		},
		"the target has precedence": {
			target: Target{Host: "me@h:22", AcceptNew: true, Timeout: time.Minute},
			config: keys + "User you\nPort 1\nStrictHostKeyChecking no\nConnectTimeout 2",
			want:   []plan{def(func(p *plan) { p.AcceptNew, p.Timeout = true, time.Minute })},
		},
		"the user of the target matches": {
			target: Target{Host: "me@h"}, config: keys + "Match user me\nPort 2\nHostKeyAlias K",
			want: []plan{def(func(p *plan) { p.To, p.KnownAs = "me@h:2", "k" })},
		},
		"no file is read": {
			target: Target{Host: "me@h", ConfigFile: os.DevNull}, config: "Port 1",
			want: []plan{def(func(p *plan) {
				p.Keys = []string{"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"}
			})},
		},
		"files of the target": {
			target: Target{
				Host: "me@h", Identities: []string{"KEY"},
				KnownHosts: "KEY",
			}, config: "IdentitiesOnly yes\nUserKnownHostsFile x",
			want: []plan{def(func(p *plan) {
				p.Keys, p.Only, p.User, p.Global = []string{"~/.ssh/key"}, true, []string{"~/.ssh/key"}, nil
			})},
		},
		"an address": {
			target: Target{Host: "me@[2001:DB8::1]:2222"}, config: keys,
			want: []plan{def(func(p *plan) {
				p.To, p.KnownAs = "me@[2001:DB8::1]:2222", "[2001:db8::1]:2222"
			})},
		},
		"jump hosts": {
			target: Target{Host: "me@h"},
			config: keys + "Host h\nProxyJump a,you@10.0.0.1:23\nHost a\nProxyJump c\nHost " +
				"10.0.0.1\nProxyJump nowhere\nHost a c\nUser us\nHost *\nProxyCommand none",
			want: []plan{
				def(func(p *plan) { p.To, p.KnownAs = "us@c:22", "c" }), def(func(p *plan) {
					p.To,
						p.KnownAs = "us@a:22", "a"
				}),
				def(func(p *plan) { p.To, p.KnownAs = "you@10.0.0.1:23", "[10.0.0.1]:23" }),
				def(func(*plan) {}),
			},
		},
		"no jump host": {target: Target{Host: "me@h"}, config: keys +
			"ProxyJump none\nProxyJump x\nProxyCommand none", want: []plan{def(func(*plan) {})}},
		"a command": {
			target: Target{Host: "me@h"}, config: keys + "ProxyCommand nc %h %p # %%",
			want: []plan{def(func(p *plan) { p.Proxy = "nc h 22 # %" })},
		},
		"an agent in a variable": {
			target: Target{Host: "me@h"}, config: keys + "IdentityAgent $KEYS",
			want: []plan{def(func(p *plan) { p.Agent = "/keys" })},
		},
		"no agent, no keys": {
			target: Target{Host: "me@h"},
			config: "IdentityAgent none\nIdentityFile none", want: []plan{def(func(p *plan) {
				p.Agent, p.Keys = "", nil
			})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			t.Setenv("SSH_AUTH_SOCK", "/agent")
			t.Setenv("KEYS", "/keys")
			if tc.config != "" {
				m.write(t, "config", tc.config)
			}
			key := m.write(t, "key", newKey(t, "ed25519").private(t, ""))
			tc.target.KnownHosts = strings.Replace(tc.target.KnownHosts, "KEY", key, 1)
			for i := range tc.target.Identities {
				tc.target.Identities[i] = key
			}
			r, err := resolve(t.Context(), tc.target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, plans(m, r)); diff != "" {
				t.Error("the settings (-want +got):", diff)
			}
		})
	}
}

func TestInvalidSettings(t *testing.T) {
	needClient(t)
	for name, tc := range map[string]struct {
		target Target
		config string
		field  string // "config" if empty
		want   string
	}{
		"no check of host keys": {
			config: "StrictHostKeyChecking no", field: "StrictHostKeyChecking", want: "set it to accept-new",
		},
		"a circle": {
			config: "Host h\nProxyJump b\nHost b\nProxyJump h", want: "circular: h, b, h;",
		},
		"a long way":           {config: "Host h\nProxyJump a,b,c,d,e,f,g,i", want: "more than 8 hosts"},
		"a bad jump host":      {config: "Host h\nProxyJump a,,b", want: "jump"},
		"a bad port":           {config: "Port 70000", want: "port"},
		"a bad name":           {config: "HostName -x", want: "HostName"},
		"a name for the shell": {config: "HostName a;b\nProxyCommand nc %h", want: "HostName"},
		"a user for the shell": {
			config: "User $(id)\nProxyCommand nc %r", field: "host", want: "invalid character",
		},
		"a bad alias":    {config: "HostKeyAlias *", want: "HostKeyAlias: "},
		"a bad token":    {config: "IdentityFile %x", want: "%x is not supported"},
		"a bad line":     {config: "Port 1\nIdentitiesOnly maybe", want: "line 2"},
		"a slow command": {config: "Match exec \"sleep 1000\"\nPort 2", want: "no end within"},
		"revoked keys":   {config: "RevokedHostKeys ~/x", want: "RevokedHostKeys is not supported"},
		"a missing file": {target: Target{ConfigFile: "/no/such/file"}, want: "/no/such/file"},
		"a host like a flag": {
			target: Target{Host: "-oProxyCommand=id"}, field: "host", want: "starts with a hyphen",
		},
		"a user like a flag": {
			target: Target{Host: "-lroot@h"}, field: "host", want: "starts with a hyphen",
		},
		"a negative time": {target: Target{Timeout: -1}, field: "timeout", want: "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			m.write(t, "config", tc.config)
			ctx := t.Context()
			if strings.Contains(tc.config, "sleep") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 300*time.Millisecond,
					errors.New("no end within 300ms"))
				defer cancel()
			}
			if tc.target.Host == "" {
				tc.target.Host = "h"
			}
			if tc.field == "" {
				tc.field = "config"
			}
			_, err := resolve(ctx, tc.target)
			var bad *ConfigError
			if !errors.As(err, &bad) || bad.Field != tc.field || !strings.Contains(bad.Reason, tc.want) {
				t.Errorf("got the error %v, want one of %s with %q", err, tc.field, tc.want)
			}
		})
	}
}

func TestNoHost(t *testing.T) {
	err := Target{ConfigFile: os.DevNull}.Validate()
	var bad *ConfigError
	if !errors.As(err, &bad) || bad.Field != "host" || !strings.Contains(bad.Reason,
		"Target.Host is missing") {
		t.Error(err)
	}
}

func TestSettingsNotes(t *testing.T) {
	needClient(t)
	for name, tc := range map[string]struct{ config, path, want string }{
		"unsupported, once for all hosts": {
			config: "Host h\nProxyJump a,b\nHost *\nAddressFamily inet6", want: "addressfamily",
		},
		"what other programs write": {
			config: "IgnoreUnknown UseKeychain\nUseKeychain yes\nSendEnv LANG\nLocalForward 1 b:2",
		},
		"no client": {config: "Port 3", path: "/nowhere", want: "no OpenSSH client"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHome(t)
			m.write(t, "config", tc.config)
			if tc.path != "" {
				t.Setenv("PATH", tc.path)
			}
			var notes []string
			r, err := resolve(t.Context(), Target{
				Host: "me@h",
				Warn: func(line string) { notes = append(notes, line) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.String() != "me@h:22" {
				t.Errorf("the host is %s", r)
			}
			if got := strings.Join(notes, "\n"); !strings.Contains(got, tc.want) || tc.want == "" &&
				got != "" || len(notes) > 1 {
				t.Errorf("got the notes %q, want one with %q", notes, tc.want)
			}
		})
	}
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]address{
		"h":                {host: "h"},
		"u@h":              {user: "u", host: "h"},
		"a@b@h:022":        {user: "a@b", host: "h", port: "22"},
		"[::1]:2222":       {host: "::1", port: "2222"},
		"[fe80::1%eth0]":   {host: "fe80::1%eth0"},
		"u@::1":            {user: "u", host: "::1"},
		"DOM+u@h_1.x:1":    {user: "DOM+u", host: "h_1.x", port: "1"},
		"[10.0.0.1]:1":     {host: "10.0.0.1", port: "1"},
		"10.0.0.1:65535":   {host: "10.0.0.1", port: "65535"},
		"xn--bcher-kva.de": {host: "xn--bcher-kva.de"},
	} {
		if got, err := parseAddress(s); err != nil || got != want {
			t.Errorf("%q: got %+v and the error %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "@h", "u@", "h:", "h:0", "h:65536", "h:-1", "h:+1", "h:x", "[::1", "[h]:22", "[::1]22",
		"[::1]:", "a:b:c", "-oX", "u@-h", "-u@h", "u;x@h", "$(x)@h", "h;x", "h$x",
		"h&", "u v@h", "u\nv@h",
		"a b", "a\nb", "a/b", "ssh://h", "u\x00@h", "h\u200b", "a,b", "*", strings.Repeat("h", 256),
	} {
		if got, err := parseAddress(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, got)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"h", "u@h:22", "[::1]:22", "u@::1", "@:", "[%]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s)
		if err != nil {
			return
		}
		h := hop{user: a.user, host: a.host, port: a.port}
		if h.port == "" {
			h.port = "22"
		}
		text := h.String()
		if h.user == "" {
			text = h.address()
		}
		again, err := parseAddress(text)
		if want := (address{a.user, a.host, h.port}); err != nil || again != want {
			t.Errorf("%q is %+v, and that is %+v, %v", s, a, again, err)
		}
	})
}
