package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plan is what the tests look at of a host.
type plan struct {
	To, KnownAs        string
	Keys, Certificates []string
	Only               bool
	Agent              string
	User, Global       []string
	AcceptNew, Hash    bool
	Timeout            time.Duration
}

// plans returns what the settings make of a target. Names in the home folder begin with ~.
func plans(m machine, r *route) (all []plan) {
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
			To: h.String(), KnownAs: h.knownAs, Keys: short(keys), Certificates: short(h.certificates), Only: h.only,
			Agent: strings.Join(short([]string{h.agent}), ""), User: short(h.userKnown), Global: short(h.globalKnown),
			AcceptNew: h.acceptNew, Hash: h.hash, Timeout: h.timeout,
		})
	}
	return all
}

func TestSettings(t *testing.T) {
	def := func(change func(*plan)) plan {
		p := plan{
			To: "me@h:22", KnownAs: "h", Keys: []string{"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"}, Agent: "/agent",
			User: []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}, Global: []string{"~/etc/ssh_known_hosts"}, Timeout: DefaultDialTimeout,
		}
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		target Target
		config string
		system string
		files  map[string]string
		want   []plan
	}{
		"nothing": {target: Target{Host: "me@h"}, want: []plan{def(func(*plan) {})}},
		"all of it": {
			target: Target{Host: "h"},
			config: `
# text
host x
  Port 1
Host="h"   other # text
	HostName=%h.example.com
  uSeR = me
  Port 2222
  IdentityFile ~/.ssh/a
  IdentityFile "%d/b %r@%h:%p"
  IdentityFile ${KEYS}/c
  CertificateFile ~/cert
  IdentitiesOnly yes
  IdentityAgent ~/sock
  UserKnownHostsFile ~/k1 "~/k 2"
  GlobalKnownHostsFile none
  StrictHostKeyChecking accept-new
  HashKnownHosts yes
  ConnectTimeout 7
  ForwardAgent yes
Host h
  Port 3
  IdentityFile ~/.ssh/d
`,
			want: []plan{{
				To: "me@h.example.com:2222", KnownAs: "[h.example.com]:2222",
				Keys:         []string{"~/.ssh/a", "~/b me@h.example.com:2222", "/keys/c", "~/.ssh/d"},
				Certificates: []string{"~/cert"}, Only: true, Agent: "~/sock",
				User: []string{"~/k1", "~/k 2"}, AcceptNew: true, Hash: true, Timeout: 7 * time.Second,
			}},
		},
		"what is named goes first": {
			target: Target{Host: "me@h:22", AcceptNew: true, Timeout: time.Minute},
			config: "User you\nPort 1\nStrictHostKeyChecking no\nConnectTimeout 2",
			want:   []plan{def(func(p *plan) { p.AcceptNew, p.Timeout = true, time.Minute })},
		},
		"the user's file goes before the system's": {
			target: Target{Host: "h"}, config: "Host h\nUser me", system: "User you\nPort 23",
			want: []plan{def(func(p *plan) { p.To, p.KnownAs = "me@h:23", "[h]:23" })},
		},
		"patterns": {
			target: Target{Host: "me@a.b.c"}, config: "Host *.b.?\nPort 3\nHost * !a.*\nPort 4\nHost a.b.c\nHostKeyAlias K",
			want: []plan{def(func(p *plan) { p.To, p.KnownAs = "me@a.b.c:3", "k" })},
		},
		"a pattern that is left out": {
			target: Target{Host: "me@h"}, config: "Host *\t!h\nPort 3", want: []plan{def(func(*plan) {})},
		},
		"Match": {
			target: Target{Host: "h"},
			config: "HostName real\nMatch !originalhost h\nPort 8\nMatch originalhost h user you\nPort 1\nMatch host real,x user !you,*\nPort 2\nUser me\n" +
				"Match !user me\nPort 9\nMatch user me host=re* !originalhost x\nConnectTimeout 3\nMatch !all\nPort 4\nMatch all\nIdentityAgent none",
			want: []plan{def(func(p *plan) {
				p.To, p.KnownAs, p.Timeout, p.Agent = "me@real:2", "[real]:2", 3*time.Second, ""
			})},
		},
		"Include": {
			target: Target{Host: "me@h"}, config: "Host h\nInclude conf.d/*.conf ~/.ssh/missing\nPort 5\nHost x\nInclude bad",
			files: map[string]string{"conf.d/1.conf": "ConnectTimeout 1m\nHost x\nPort 3", "conf.d/2.conf": "Host h\nPort 4", "bad": "Port x"},
			want:  []plan{def(func(p *plan) { p.To, p.KnownAs, p.Timeout = "me@h:4", "[h]:4", time.Minute })},
		},
		"another file": {
			target: Target{Host: "me@h", ConfigFile: "~other"}, config: "Port 1", system: "Port 2", files: map[string]string{"other": "\ufeffPort 3\r\n"},
			want: []plan{def(func(p *plan) { p.To, p.KnownAs = "me@h:3", "[h]:3" })},
		},
		"no file": {target: Target{Host: "me@h", ConfigFile: os.DevNull}, config: "Port 1", system: "x", want: []plan{def(func(*plan) {})}},
		"named files": {
			target: Target{Host: "me@h", Identities: []string{"~key"}, KnownHosts: "~kh"}, config: "IdentitiesOnly yes\nUserKnownHostsFile x",
			files: map[string]string{"key": "KEY", "kh": ""},
			want: []plan{def(func(p *plan) {
				p.Keys, p.Only, p.User, p.Global = []string{"~/.ssh/key"}, true, []string{"~/.ssh/kh"}, nil
			})},
		},
		"an address": {target: Target{Host: "me@[2001:DB8::1]:2222"}, want: []plan{def(func(p *plan) { p.To, p.KnownAs = "me@[2001:DB8::1]:2222", "[2001:db8::1]:2222" })}},
		"jump hosts": {
			target: Target{Host: "me@h"}, config: "Host h\nProxyJump a,you@b:23\nHost a\nProxyJump c\nHost b\nProxyJump nowhere\nHost a c\nUser us\nHost *\nProxyCommand none",
			want: []plan{
				def(func(p *plan) { p.To, p.KnownAs = "us@c:22", "c" }), def(func(p *plan) { p.To, p.KnownAs = "us@a:22", "a" }),
				def(func(p *plan) { p.To, p.KnownAs = "you@b:23", "[b]:23" }), def(func(*plan) {}),
			},
		},
		"no jump host":            {target: Target{Host: "me@h"}, config: "ProxyJump none\nProxyJump x\nProxyCommand x", want: []plan{def(func(*plan) {})}},
		"no command after a jump": {target: Target{Host: "me@h"}, config: "Host h\nProxyJump none\nHost *\nProxyCommand x", want: []plan{def(func(*plan) {})}},
		"no identities":           {target: Target{Host: "me@h"}, config: "IdentityFile none", want: []plan{def(func(p *plan) { p.Keys = nil })}},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(tc.config, "${KEYS}") {
				t.Skip("/keys is no absolute name there")
			}
			m := newPlace(t)
			t.Setenv("SSH_AUTH_SOCK", "/agent")
			t.Setenv("KEYS", "/keys")
			m.write(t, "config", tc.config)
			m.write(t, m.config, tc.system)
			if err := os.Mkdir(m.dot("conf.d"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, content := range tc.files {
				if content == "KEY" {
					content = newKey(t, "ed25519").private(t, "")
				}
				m.write(t, file, content)
			}
			here := func(name string) string {
				if rest, ok := strings.CutPrefix(name, "~"); ok {
					return m.dot(rest)
				}
				return name
			}
			tc.target.ConfigFile, tc.target.KnownHosts = here(tc.target.ConfigFile), here(tc.target.KnownHosts)
			for i, id := range tc.target.Identities {
				tc.target.Identities[i] = here(id)
			}
			r, err := m.resolve(tc.target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, plans(m, r)); diff != "" {
				t.Error("the settings (-want +got):", diff)
			}
			if want := tc.want[len(tc.want)-1].To; r.String() != want {
				t.Errorf("the host is %s, want %s", r, want)
			}
		})
	}
}

func TestSettingsThatCannotBeMeant(t *testing.T) {
	for name, tc := range map[string]struct {
		target Target
		config string
		field  string // "config" if empty
		want   string
	}{
		"no check of host keys":  {config: "StrictHostKeyChecking no", want: "config:1: \"StrictHostKeyChecking no\" would let anybody be the host, which is not supported; \"StrictHostKeyChecking accept-new\""},
		"off":                    {config: "\nStrictHostKeyChecking off", want: "config:2: "},
		"a strange check":        {config: "StrictHostKeyChecking maybe", want: "none of yes, ask, accept-new"},
		"a command":              {config: "ProxyCommand nc %h %p", want: "ProxyCommand is not supported"},
		"a command before":       {config: "ProxyCommand nc\nProxyJump x", want: "ProxyCommand is not supported"},
		"a circle":               {config: "ProxyJump b", want: "in a circle: h, b, b;"},
		"a long way":             {config: "Host h\nProxyJump a,b,c,d,e,f,g,i", want: "more than 8 hosts"},
		"a bad jump host":        {config: "Host h\nProxyJump a,,b", want: "there is no name of a host"},
		"a bad port":             {config: "Port 70000", want: "is no port"},
		"a bad name":             {config: "HostName a/b", want: "HostName: the name of a host has no character '/'"},
		"a bad alias":            {config: "HostKeyAlias *", want: "HostKeyAlias: "},
		"a bad token":            {config: "IdentityFile %x", want: "%x is not known here"},
		"a variable not set":     {config: "IdentityFile ${NO_SUCH_VARIABLE}", want: "NO_SUCH_VARIABLE"},
		"neither yes nor no":     {config: "IdentitiesOnly maybe", want: "neither yes nor no"},
		"a bad time":             {config: "ConnectTimeout x", want: "ConnectTimeout"},
		"an open quote":          {config: "IdentityFile \"x", want: "config:1: IdentityFile: a quote is not closed"},
		"no value":               {config: "Host h\nPort", want: "config:2: Port has no value"},
		"revoked keys":           {config: "RevokedHostKeys ~/x", want: "RevokedHostKeys is not supported"},
		"a file in itself":       {config: "Include config", want: "include each other"},
		"a long line":            {config: "# " + strings.Repeat("x", 20<<10), want: "the line is too long"},
		"a big file":             {config: strings.Repeat("# text\n", 200<<10), want: "more than 1024 KiB"},
		"a missing file":         {target: Target{ConfigFile: "/no/such/file"}, want: "/no/such/file"},
		"a folder":               {target: Target{ConfigFile: os.TempDir()}, want: "is a directory"},
		"no host":                {target: Target{Host: "-"}, field: "host", want: "does not begin with a hyphen"},
		"a negative time":        {target: Target{Timeout: -1}, field: "timeout", want: "negative"},
		"a host with a bad port": {target: Target{Host: "h:x"}, field: "host", want: "is no port"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newPlace(t)
			m.write(t, "config", tc.config)
			if tc.target.Host == "" {
				tc.target.Host = "h"
			}
			if tc.field == "" {
				tc.field = "config"
			}
			_, err := m.resolve(tc.target)
			var bad *ConfigError
			if !errors.As(err, &bad) || bad.Field != tc.field || !strings.Contains(bad.Reason, tc.want) {
				t.Errorf("got the error %v, want one of %s with %q", err, tc.field, tc.want)
			}
		})
	}
}

func TestSettingsTellWhatTheyIgnore(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   []string // parts, with the file's name as FILE
	}{
		"a command of Match":        {"Match exec \"true\"\nPort 3", []string{`FILE:1: "Match exec" is not supported`}},
		"after a criterion":         {"Match host h exec true\nPort 3\nMatch host x exec true\nPort 4", []string{"FILE:1"}},
		"what would not matter":     {"Match exec true\nForwardX11 yes\nMatch final all\nInclude x", nil},
		"another address":           {"BindAddress 10.0.0.1\nAddressFamily any", []string{"FILE:1: bindaddress is not supported"}},
		"once for all jump hosts":   {"Host h\nProxyJump a,b\nHost *\nAddressFamily inet6", []string{"FILE:4: addressfamily"}},
		"what other programs write": {"IgnoreUnknown UseKeychain\nUseKeychain yes\nSendEnv LANG\nLocalForward 1 b:2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newPlace(t)
			file := m.write(t, "config", tc.config)
			var notes []string
			r, err := m.resolve(Target{Host: "me@h", Note: func(line string) { notes = append(notes, line) }})
			if err != nil {
				t.Fatal(err)
			}
			if r.String() != "me@h:22" {
				t.Errorf("the host is %s", r)
			}
			if len(notes) != len(tc.want) {
				t.Fatalf("got the notes %q, want %q", notes, tc.want)
			}
			for i, part := range tc.want {
				if !strings.Contains(notes[i], strings.ReplaceAll(part, "FILE", file)) {
					t.Errorf("the note %q lacks %q", notes[i], part)
				}
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
		"DOM\\u@h_1.x:1":   {user: "DOM\\u", host: "h_1.x", port: "1"},
		"10.0.0.1:65535":   {host: "10.0.0.1", port: "65535"},
		"xn--bcher-kva.de": {host: "xn--bcher-kva.de"},
	} {
		if got, err := parseAddress(s); err != nil || got != want {
			t.Errorf("%q: got %+v and the error %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "@h", "u@", "h:", "h:0", "h:65536", "h:-1", "h:+1", "h:x", "[::1", "[h]:22", "[::1]22", "[::1]:", "[10.0.0.1]:1", "a:b:c", "-oX", "u@-h",
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

func FuzzConfigFile(f *testing.F) {
	f.Add("Host h\n  Port 22 # x\nMatch host h user \"a b\"\nIdentityFile = \"a\" b\n")
	f.Add("Match exec x\nInclude y\n\tHost=*\r\nIdentityFile ~/%%\nHost !")
	m := newPlace(f)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") {
			t.Skip("it would read the files of this machine")
		}
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := m.resolve(Target{Host: "me@h", ConfigFile: file})
		var bad *ConfigError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("got the error %v, want a ConfigError", err)
		}
		if err == nil && !strings.HasPrefix(r.String(), "me@") {
			t.Errorf("the host is %s", r)
		}
	})
}
