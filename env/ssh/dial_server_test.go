package ssh

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// sshKey is a key with the forms that the tests need.
type sshKey struct {
	raw    crypto.PrivateKey
	signer gossh.Signer
}

func newKey(t testing.TB, kind string) sshKey {
	t.Helper()
	var raw crypto.PrivateKey
	var err error
	switch kind {
	case "ed25519":
		_, raw, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		raw, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		raw, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		t.Fatalf("no such kind of key: %s", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return sshKey{raw, signer}
}

func (k sshKey) public() gossh.PublicKey { return k.signer.PublicKey() }

// private returns the content of a key file. Its passphrase has a single round where ssh-keygen is
// installed: the usual sixteen take seconds with the race detector, each time.
func (k sshKey) private(t testing.TB, passphrase string) string {
	t.Helper()
	plain, err := gossh.MarshalPrivateKey(k.raw, "test")
	if err != nil {
		t.Fatal(err)
	}
	if passphrase == "" {
		return string(pem.EncodeToMemory(plain))
	}
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		locked, err := gossh.MarshalPrivateKeyWithPassphrase(k.raw, "test", []byte(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(locked))
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), keygen, "-q", "-p", "-a", "1", "-P", "", "-N", passphrase,
		"-f", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	locked, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(locked)
}

// authorized returns the key as a .pub file has it.
func authorized(k gossh.PublicKey) string { return string(gossh.MarshalAuthorizedKey(k)) }

// certificate returns a certificate for a key.
func certificate(
	t testing.TB, key gossh.PublicKey, kind uint32, name string, ca sshKey,
) *gossh.Certificate {
	t.Helper()
	c := &gossh.Certificate{
		Key: key, CertType: kind, ValidPrincipals: []string{name},
		ValidBefore: gossh.CertTimeInfinity,
	}
	if err := c.SignCert(rand.Reader, ca.signer); err != nil {
		t.Fatal(err)
	}
	return c
}

// home is the home directory of a test, with its SSH files.
type home struct{ localFiles }

// newHome returns a home directory of the test's own, and sets HOME to it.
func newHome(t testing.TB) home {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	t.Setenv("SSH_AUTH_SOCK", "")
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	return home{findLocalFiles()}
}

// write writes a file, in ~/.ssh unless its name is absolute.
func (m home) write(t testing.TB, name, content string) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = m.dot(name)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// read returns the content of a file in ~/.ssh.
func (m home) read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(m.dot(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// newLogin returns a home directory and a server whose host key its known_hosts has, and that
// accepts its key, which has a passphrase unless that is empty.
func newLogin(t testing.TB, passphrase, prelude string) (home, *server) {
	t.Helper()
	host, key := newKey(t, "ed25519"), newKey(t, "ed25519")
	s := newServer(t, serverConfig{
		keys: []gossh.Signer{host.signer}, users: []gossh.PublicKey{key.public()}, prelude: prelude,
	})
	m := newHome(t)
	m.write(t, "known_hosts", s.known(host.public()))
	m.write(t, "id_ed25519", key.private(t, passphrase))
	return m, s
}

// route finds the route to a target.
func (m home) route(t testing.TB, target Target) *route {
	t.Helper()
	r, err := resolve(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// connect logs in, sends a request to the host, and disconnects.
func (m home) connect(t testing.TB, target Target) error {
	t.Helper()
	r, err := resolve(t.Context(), target)
	if err != nil {
		return err
	}
	return r.try(t.Context())
}

// dial logs in.
func (r *route) dial(ctx context.Context) (*gossh.Client, error) {
	client, _, err := r.dialCounted(ctx)
	return client, err
}

// try logs in, sends a request to the host, and disconnects.
func (r *route) try(ctx context.Context) error {
	client, err := r.dial(ctx)
	if err != nil {
		return err
	}
	_, _, err = client.SendRequest(aliveRequest, true, nil)
	return errors.Join(err, client.Close())
}

// server is an SSH server on this machine.
type server struct {
	host, port string

	mu    sync.Mutex
	conns []net.Conn
	users []string
}

// serverConfig configures a server.
type serverConfig struct {
	// keys are those of the host.
	keys []gossh.Signer
	// users are keys that it accepts, and authority one that signs certificates for them.
	users     []gossh.PublicKey
	authority gossh.PublicKey
	// prelude comes before the version.
	prelude string
	change  func(*gossh.ServerConfig)
}

func (s *server) String() string { return "user@" + s.host + ":" + s.port }

// known returns a line of known_hosts.
func (s *server) known(key gossh.PublicKey) string {
	return "[" + s.host + "]:" + s.port + " " + authorized(key)
}

// open returns the number of connections.
func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// names returns the users that logged in.
func (s *server) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.users, " ")
}

// hangUp closes all connections.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

func listen(t testing.TB, serve func(net.Conn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	s.host, s.port, _ = net.SplitHostPort(l.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				defer func() { _ = c.Close() }()
				s.mu.Lock()
				s.conns = append(s.conns, c)
				s.mu.Unlock()
				serve(c)
				s.mu.Lock()
				s.conns = slices.DeleteFunc(s.conns, func(other net.Conn) bool { return other == c })
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	return s
}

func newServer(t testing.TB, c serverConfig) *server {
	t.Helper()
	var s *server
	checker := gossh.CertChecker{
		IsUserAuthority: func(k gossh.PublicKey) bool {
			return c.authority != nil && bytes.Equal(k.Marshal(), c.authority.Marshal())
		},
		UserKeyFallback: func(_ gossh.ConnMetadata, k gossh.PublicKey) (*gossh.Permissions, error) {
			if slices.ContainsFunc(c.users, func(u gossh.PublicKey) bool {
				return bytes.Equal(k.Marshal(), u.Marshal())
			}) {
				return nil, nil
			}
			return nil, errors.New("not this one")
		},
	}
	config := &gossh.ServerConfig{PublicKeyCallback: checker.Authenticate}
	for _, k := range c.keys {
		config.AddHostKey(k)
	}
	if c.change != nil {
		c.change(config)
	}
	s = listen(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, c.prelude)
		sc, chans, reqs, err := gossh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.users = append(s.users, sc.User())
		s.mu.Unlock()
		go gossh.DiscardRequests(reqs)
		serveForwards(chans)
	})
	return s
}

// serveForwards serves forwarded connections.
func serveForwards(chans <-chan gossh.NewChannel) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := range chans {
		var to struct {
			Host     string
			Port     uint32
			From     string
			FromPort uint32
		}
		if n.ChannelType() != "direct-tcpip" || gossh.Unmarshal(n.ExtraData(), &to) != nil {
			_ = n.Reject(gossh.UnknownChannelType, "no")
			continue
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
		if err != nil {
			_ = n.Reject(gossh.ConnectionFailed, "Connection \x1b[31mrefused")
			continue
		}
		ch, reqs, err := n.Accept()
		if err != nil {
			_ = conn.Close()
			continue
		}
		go gossh.DiscardRequests(reqs)
		all.Go(func() {
			_, _ = io.Copy(ch, conn)
			_ = ch.Close()
		})
		all.Go(func() {
			_, _ = io.Copy(conn, ch)
			_ = conn.Close()
		})
	}
}

// serveAgent serves an agent on a socket, and returns its name.
func serveAgent(t testing.TB, keyring agent.Agent) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a") //nolint:usetesting // the name of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				_ = agent.ServeAgent(keyring, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait() // a client that keeps its connection hangs the test
	})
	return l.Addr().String()
}

// newAgent returns an agent with keys.
func newAgent(t testing.TB, keys ...sshKey) agent.Agent {
	t.Helper()
	a := agent.NewKeyring()
	for _, k := range keys {
		if err := a.Add(agent.AddedKey{PrivateKey: k.raw}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
