package ssh

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// asker answers with passphrases, and counts.
type asker struct {
	answers []string
	files   []string
}

func (a *asker) ask(_ context.Context, file string) ([]byte, error) {
	a.files = append(a.files, file)
	if len(a.answers) == 0 {
		return nil, errors.New("no terminal")
	}
	answer := a.answers[0]
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	return []byte(answer), nil
}

func TestLogin(t *testing.T) {
	host := newKey(t, "ed25519")
	key, other, ca := newKey(t, "ed25519"), newKey(t, "ed25519"), newKey(t, "ed25519")
	ec, rs := newKey(t, "ecdsa"), newKey(t, "rsa")
	locked, otherLocked := key.private(t, "secret"), other.private(t, "x")
	cert := certificate(t, key.public(), gossh.UserCert, "user", ca)
	rootCert := certificate(t, key.public(), gossh.UserCert, "root", ca)
	inAgent := func(keys ...sshKey) (all []agent.AddedKey) {
		for _, k := range keys {
			all = append(all, agent.AddedKey{PrivateKey: k.raw})
		}
		return all
	}
	anyPassword := func(gossh.ConnMetadata, []byte) (*gossh.Permissions, error) { return nil, nil }
	accepts := func(algorithms ...string) func(*gossh.ServerConfig) {
		return func(c *gossh.ServerConfig) { c.PublicKeyAuthAlgorithms = algorithms }
	}
	fewTries := func(n int) func(*gossh.ServerConfig) {
		return func(c *gossh.ServerConfig) { c.MaxAuthTries = n }
	}
	var many []sshKey
	for range 5 {
		many = append(many, newKey(t, "ed25519"))
	}
	for name, tc := range map[string]struct {
		files     map[string]string
		config    string
		named     []string
		agent     []agent.AddedKey
		ask       *asker
		users     []gossh.PublicKey // key if nil
		authority gossh.PublicKey
		change    func(*gossh.ServerConfig)
		want      string // part of the error; empty means success
		asks      int
	}{
		"the default ed25519 key": {files: map[string]string{"id_ed25519": key.private(t, "")}},
		"the default ecdsa key": {
			files: map[string]string{"id_ecdsa": ec.private(t, "")}, users: []gossh.PublicKey{ec.public()},
		},
		"the default rsa key, with a server that takes no SHA-1": {
			files: map[string]string{"id_rsa": rs.private(t, "")}, users: []gossh.PublicKey{rs.public()},
			change: accepts(gossh.KeyAlgoRSASHA256, gossh.KeyAlgoRSASHA512),
		},
		"no rsa key with a server that takes SHA-1 only": {
			files: map[string]string{"id_rsa": rs.private(t, "")}, users: []gossh.PublicKey{rs.public()},
			change: accepts(gossh.KeyAlgoRSA), want: "takes none of the keys ssh-rsa SHA256:",
		},
		"an rsa key of the agent": {
			agent: inAgent(rs), users: []gossh.PublicKey{rs.public()},
			change: accepts(gossh.KeyAlgoRSASHA512),
		},
		"a named key": {files: map[string]string{"k": key.private(t, "")}, named: []string{"k"}},
		"a key of the configuration": {
			files: map[string]string{"k": key.private(t, "")}, config: "IdentityFile ~/.ssh/k",
		},
		"a named key is the first": {
			files:  map[string]string{"k": key.private(t, ""), "o": other.private(t, "")},
			config: "IdentityFile ~/.ssh/o", named: []string{"k"}, agent: inAgent(many...),
			change: fewTries(1),
		},
		"the agent's keys after those of files": {
			files: map[string]string{"o": other.private(t, "")}, config: "IdentityFile ~/.ssh/o",
			agent: inAgent(key),
		},
		"no key at all": {want: "no key to try"},
		"a wrong key": {
			files: map[string]string{"id_ed25519": other.private(t, "")},
			want:  "takes none of the keys ssh-ed25519 " + gossh.FingerprintSHA256(other.public()),
		},
		"a key file that others can read": {
			files:  map[string]string{"id_ed25519 open": key.private(t, "")},
			config: "IdentityFile \"~/.ssh/id_ed25519 open\"", want: "has the mode 0644",
		},
		"a locked key, and a prompt": {
			files: map[string]string{"id_ed25519": locked}, ask: &asker{answers: []string{"secret"}},
			asks: 1,
		},
		"a locked key, and a wrong answer first": {
			files: map[string]string{"id_ed25519": locked}, ask: &asker{answers: []string{"a", "secret"}},
			asks: 2,
		},
		"a locked key, and wrong answers only": {
			files: map[string]string{"id_ed25519": locked}, ask: &asker{answers: []string{"a"}}, asks: 3,
			want: "is encrypted, and 3 passphrases were wrong",
		},
		"a locked key, and no prompt": {
			files: map[string]string{"id_ed25519": locked},
			want:  "id_ed25519 is encrypted, and no terminal can prompt for its passphrase; add it to",
		},
		"a locked key, and an asker without a terminal": {
			files: map[string]string{"id_ed25519": locked}, ask: &asker{}, asks: 1,
			want: "its passphrase was not given: no terminal",
		},
		"a locked key that the agent has": {
			files: map[string]string{"id_ed25519": locked}, agent: inAgent(key), ask: &asker{},
		},
		"a locked key is not asked for when another one is let in": {
			files:  map[string]string{"l": otherLocked, "k": key.private(t, "")},
			config: "IdentityFile ~/.ssh/l\nIdentityFile ~/.ssh/k",
			users:  []gossh.PublicKey{key.public(), other.public()}, ask: &asker{},
		},
		"a locked key is not asked for when the server does not take it": {
			files: map[string]string{"id_ed25519": otherLocked}, ask: &asker{},
			want: "takes none of the keys",
		},
		"a named locked key that cannot be opened does not keep the next from being tried": {
			files: map[string]string{"l": otherLocked, "k": key.private(t, "")}, named: []string{"l", "k"},
			users: []gossh.PublicKey{key.public(), other.public()},
		},
		"a certificate beside the key": {
			files: map[string]string{"k": key.private(t, ""), "k-cert.pub": authorized(cert)},
			named: []string{"k"}, users: []gossh.PublicKey{other.public()}, authority: ca.public(),
		},
		"a certificate for a locked key": {
			files: map[string]string{"k": locked, "k-cert.pub": authorized(cert)}, named: []string{"k"},
			ask: &asker{answers: []string{"secret"}}, users: []gossh.PublicKey{other.public()},
			authority: ca.public(), asks: 1,
		},
		"a certificate of the configuration, with a key of the agent": {
			files: map[string]string{"c": authorized(cert)}, config: "CertificateFile %d/.ssh/c",
			agent: inAgent(key), users: []gossh.PublicKey{other.public()}, authority: ca.public(),
		},
		"a certificate of the agent": {
			agent: []agent.AddedKey{{PrivateKey: key.raw, Certificate: cert}},
			users: []gossh.PublicKey{other.public()}, authority: ca.public(),
		},
		"a certificate of the agent, chosen by the key's .pub": {
			files:  map[string]string{"k.pub": authorized(key.public())},
			config: "IdentityFile ~/.ssh/k\nIdentitiesOnly yes",
			agent: append(inAgent(append(many, key)...),
				agent.AddedKey{PrivateKey: key.raw, Certificate: cert}),
			users: []gossh.PublicKey{other.public()}, authority: ca.public(), change: fewTries(1),
		},
		"a certificate for another user": {
			files: map[string]string{"k": key.private(t, ""), "k-cert.pub": authorized(rootCert)},
			named: []string{"k"}, users: []gossh.PublicKey{other.public()}, authority: ca.public(),
			want: "takes none of the keys ssh-ed25519-cert-v01@openssh.com",
		},
		"too many keys": {
			agent: inAgent(append(many, key)...), change: fewTries(3),
			want: "IdentitiesOnly and IdentityFile try fewer",
		},
		"IdentitiesOnly leaves the agent's other keys out": {
			files:  map[string]string{"k.pub": authorized(key.public())},
			config: "IdentitiesOnly yes\nIdentityFile ~/.ssh/k.pub", agent: inAgent(append(many, key)...),
			change: fewTries(1),
		},
		"IdentitiesOnly, and only the agent has the key": {
			files:  map[string]string{"o": other.private(t, "")},
			config: "IdentitiesOnly yes\nIdentityFile ~/.ssh/o", agent: inAgent(key),
			want: "takes none of the keys",
		},
		"a named .pub without its key": {
			files: map[string]string{"k.pub": authorized(key.public())}, named: []string{"k.pub"},
			want: "is a public key only",
		},
		"IdentityAgent none": {config: "IdentityAgent none", agent: inAgent(key), want: "no key to try"},
		"no agent there":     {config: "IdentityAgent ~/no-agent", want: "not tried: ssh-agent: "},
		"passwords only": {
			files: map[string]string{"id_ed25519": key.private(t, "")},
			change: func(c *gossh.ServerConfig) {
				c.PublicKeyCallback, c.PasswordCallback = nil, anyPassword
			},
			want: "the server takes no keys, only password",
		},
		"a key and something else": {
			files: map[string]string{"id_ed25519": key.private(t, "")},
			change: func(c *gossh.ServerConfig) {
				c.PublicKeyCallback = func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions, error) {
					return nil, &gossh.PartialSuccessError{
						Next: gossh.ServerAuthCallbacks{PasswordCallback: anyPassword},
					}
				}
			},
			want: "the server accepts the key and also requires password",
		},
		"a banner is shown without control characters after a failure": {
			change: func(c *gossh.ServerConfig) {
				c.BannerCallback = func(gossh.ConnMetadata) string { return "ask\x1b]0;x\a\r\nBob\n" }
			},
			want: "the banner of the server: ask?]0;x? Bob",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(tc.want, "mode 0644") && runtime.GOOS == "windows" {
				t.Skip("files have no mode there")
			}
			if tc.agent != nil && runtime.GOOS == "windows" {
				t.Skip("the tests' agent listens on a Unix socket")
			}
			m := newHome(t)
			if tc.users == nil {
				tc.users = []gossh.PublicKey{key.public()}
			}
			s := newServer(t, serverConfig{
				keys: []gossh.Signer{host.signer}, users: tc.users,
				authority: tc.authority, change: tc.change,
			})
			m.write(t, "known_hosts", s.known(host.public()))
			if tc.config != "" {
				m.write(t, "config", tc.config)
			}
			for file, content := range tc.files {
				path := m.write(t, file, content)
				if strings.HasSuffix(file, "open") {
					if err := os.Chmod(path, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.agent != nil {
				a := agent.NewKeyring()
				for _, k := range tc.agent {
					if err := a.Add(k); err != nil {
						t.Fatal(err)
					}
				}
				t.Setenv("SSH_AUTH_SOCK", serveAgent(t, a))
			}
			target := Target{Host: s.String()}
			for _, n := range tc.named {
				target.Identities = append(target.Identities, m.dot(n))
			}
			if tc.ask != nil {
				target.Passphrase = tc.ask.ask
			}
			err := m.connect(t, target)
			if tc.ask != nil && len(tc.ask.files) != tc.asks {
				t.Errorf("asked for %q, want %d times", tc.ask.files, tc.asks)
			}
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var auth *AuthError
			if !errors.As(err, &auth) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got the error %v, want an AuthError with %q", err, tc.want)
			}
			if strings.ContainsAny(err.Error(), "\x1b\a\r\n") {
				t.Errorf("the message %q has control characters", err)
			}
		})
	}
}

// stubborn is an agent that has keys and does not use them.
type stubborn struct{ agent.ExtendedAgent }

func (stubborn) SignWithFlags(
	gossh.PublicKey, []byte, agent.SignatureFlags,
) (*gossh.Signature, error) {
	return nil, errors.New("denied")
}

func (stubborn) Sign(gossh.PublicKey, []byte) (*gossh.Signature, error) {
	return nil, errors.New("denied")
}

func TestLoginAfterAgentDenial(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the tests' agent listens on a Unix socket")
	}
	host, key, other := newKey(t, "ed25519"), newKey(t, "ed25519"), newKey(t, "ed25519")
	s := newServer(t, serverConfig{
		keys:  []gossh.Signer{host.signer},
		users: []gossh.PublicKey{key.public(), other.public()},
	})
	m := newHome(t)
	m.write(t, "known_hosts", s.known(host.public()))
	held := newAgent(t, key).(agent.ExtendedAgent)
	t.Setenv("SSH_AUTH_SOCK", serveAgent(t, stubborn{held}))
	err := m.connect(t, Target{Host: s.String()})
	if err == nil || !strings.Contains(err.Error(), "cannot sign") {
		t.Errorf("got the error %v, want one of the agent", err)
	}
	m.write(t, "l", other.private(t, "x"))
	m.write(t, "config", "IdentityFile ~/.ssh/l")
	ask := &asker{answers: []string{"x"}}
	if err := m.connect(t, Target{Host: s.String(), Passphrase: ask.ask}); err != nil {
		t.Error(err)
	}
}

func TestPassphrasePromptedOnce(t *testing.T) {
	m, s := newLogin(t, "x", "")
	ask := &asker{answers: []string{"x"}}
	r := m.route(t, Target{Host: s.String(), Passphrase: ask.ask})
	for range 2 {
		if err := r.try(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(ask.files) != 1 {
		t.Errorf("%d prompts for two connections", len(ask.files))
	}
}

func TestPassphraseEndsWithTheContext(t *testing.T) {
	m, s := newLogin(t, "x", "")
	wait := func(ctx context.Context, _ string) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	r := m.route(t, Target{Host: s.String(), Passphrase: wait})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.try(ctx) }()
	eventually(t, "the prompt", func() bool { return len(r.prompting) == 1 })
	gone := errors.New("the user is gone")
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("got the error %v, want that of the context", err)
	}
}

func TestPromptStopsClock(t *testing.T) {
	l := &login{hop: &hop{timeout: time.Hour}, clock: time.AfterFunc(time.Hour, func() {})}
	goOn := l.pause()
	if l.clock.Stop() {
		t.Error("the clock runs during the prompt")
	}
	if goOn(); !l.clock.Stop() {
		t.Error("the clock does not run after the answer")
	}
	l.pause()()
	if l.clock.Stop() {
		t.Error("a clock that has run out runs again")
	}
}

func TestNamedIdentityValidated(t *testing.T) {
	m := newHome(t)
	key := newKey(t, "ed25519")
	open := m.write(t, "open", key.private(t, ""))
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"missing":           {m.dot("missing"), "does not exist"},
		"a directory":       {m.home, "is a directory"},
		"no key":            {m.write(t, "text", "hello"), "cannot be used as a private key"},
		"others can use it": {open, "has the mode 0640"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "others can use it" && runtime.GOOS == "windows" {
				t.Skip("files have no mode there")
			}
			err := Target{Host: "h", ConfigFile: os.DevNull, Identities: []string{tc.file}}.Validate()
			var bad *ConfigError
			if !errors.As(err, &bad) || bad.Field != "identity" || !strings.Contains(bad.Reason, tc.want) ||
				!strings.Contains(bad.Reason, tc.file) {
				t.Errorf("got the error %v, want one of the identity with %q", err, tc.want)
			}
		})
	}
	good := m.write(t, "good", key.private(t, ""))
	target := Target{Host: "h", ConfigFile: os.DevNull, Identities: []string{good}}
	if err := target.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := readKeyFile(identityFile{path: m.dot("missing")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestOpeningAKeyStopsTheClock(t *testing.T) {
	m := newHome(t)
	k, err := readKeyFile(identityFile{path: m.write(t, "k", newKey(t, "ed25519").private(t, "x"))})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	r := m.route(t, Target{Host: "me@h", Passphrase: func(context.Context, string) ([]byte, error) {
		if !stopped {
			t.Error("the clock runs during the prompt")
		}
		return nil, errors.New("no answer")
	}})
	_, err = r.open(t.Context(), k, func() func() {
		stopped = true
		return func() { stopped = false }
	})
	if err == nil || stopped {
		t.Errorf("got the error %v, and the clock is stopped: %v", err, stopped)
	}
}
