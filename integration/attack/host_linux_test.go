package attack_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// host is an SSH server on this machine that may attack its client. By default it serves honestly.
type host struct {
	hostAttack
	address string
	home    string
	// uid is the user of its commands, if it is not 0.
	uid    int
	config *gossh.ServerConfig

	mu sync.Mutex
	// stolen lists what the client gave to the server and should not have.
	stolen []string
	all    sync.WaitGroup
	conns  []net.Conn
}

// hostAttack is an attack by a host.
type hostAttack struct {
	name string
	// args are the arguments of the program instead of those of exec; they may name {FROM} and {TO},
	// directories of the host and of this machine.
	args []string
	// code is the exit code, and text a part of standard error.
	code int
	text string
	// prelude is sent before the handshake; endless repeats it.
	prelude string
	endless bool
	// setup changes the server.
	setup func(*host)
	// answer replaces the shell of the host. It gets the session, and the variables of the script.
	answer func(ch gossh.Channel, vars map[string]string)
	// filter changes the output of the honest shell.
	filter func(h *host, w io.Writer) io.Writer
	// connected attacks the client on its connection.
	connected func(h *host, c gossh.Conn)
	// sftp answers the start of an SFTP session.
	sftp func(ch gossh.Channel)
}

func newHostKey(t *testing.T) (gossh.Signer, []byte) {
	t.Helper()
	_, raw, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

func (h *host) steal(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stolen = append(h.stolen, fmt.Sprintf(format, args...))
}

// start starts the server with a key, and stops it after the test.
func (h *host) start(t *testing.T, key gossh.Signer, user gossh.PublicKey) {
	t.Helper()
	h.config = &gossh.ServerConfig{
		PublicKeyCallback: func(_ gossh.ConnMetadata, k gossh.PublicKey) (*gossh.Permissions, error) {
			if !bytes.Equal(k.Marshal(), user.Marshal()) {
				return nil, errors.New("another key")
			}
			return nil, nil
		},
	}
	h.config.AddHostKey(key)
	if h.setup != nil {
		h.setup(h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	h.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns = append(h.conns, conn)
			h.mu.Unlock()
			h.all.Go(func() { h.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		h.all.Wait()
	})
}

// serve serves a connection.
func (h *host) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // the client may have closed it
	if h.endless {
		flood(conn, "", h.prelude)
		return
	}
	_, _ = io.WriteString(conn, h.prelude)
	c, chans, reqs, err := gossh.NewServerConn(conn, h.config)
	if err != nil {
		return
	}
	h.all.Go(func() { gossh.DiscardRequests(reqs) })
	if h.connected != nil {
		h.all.Go(func() { h.connected(h, c) })
	}
	for n := range chans {
		if n.ChannelType() != "session" {
			_ = n.Reject(gossh.Prohibited, escapes) // the client uses a session instead
			continue
		}
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		h.all.Go(func() { h.session(ch, reqs) })
	}
}

// session serves a session.
func (h *host) session(ch gossh.Channel, reqs <-chan *gossh.Request) {
	defer ch.Close() //nolint:errcheck // the client may have closed it
	for r := range reqs {
		switch {
		case r.Type == "auth-agent-req@openssh.com" || r.Type == "x11-req":
			h.steal("a request of %s", r.Type)
			_ = r.Reply(true, nil)
		case r.Type == "subsystem" && h.sftp != nil:
			_ = r.Reply(true, nil)
			h.sftp(ch)
			return
		case r.Type == "exec":
			_ = r.Reply(true, nil)
			h.all.Go(func() { gossh.DiscardRequests(reqs) })
			if h.answer != nil {
				h.answer(ch, variables(ch))
			} else {
				h.shell(ch, string(r.Payload[4:]))
			}
			return
		default:
			_ = r.Reply(false, nil)
		}
	}
}

// variables reads the variables at the start of a script.
func variables(r io.Reader) map[string]string {
	vars := make(map[string]string)
	for s := bufio.NewScanner(r); vars["m"] == "" && s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		vars[name] = strings.Trim(value, "'")
	}
	return vars
}

// shell runs a command line as an honest host does.
func (h *host) shell(ch gossh.Channel, line string) {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = []string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = h.home
	if h.uid != 0 {
		id := uint32(h.uid) //nolint:gosec // it fits
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	cmd.Stderr = ch.Stderr()
	cmd.Stdout = ch
	if h.filter != nil {
		cmd.Stdout = h.filter(h, ch)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	h.all.Go(func() {
		_, _ = io.Copy(in, ch)
		_ = in.Close() // the end of the client
	})
	_ = cmd.Run() // the client gets the code
	code := []byte{0, 0, 0, byte(cmd.ProcessState.ExitCode())}
	_, _ = ch.SendRequest("exit-status", false, code)
}

// answers sends lines with the mark of the script, in which {i} is the session.
func answers(lines ...string) func(gossh.Channel, map[string]string) {
	return func(ch gossh.Channel, vars map[string]string) {
		for _, line := range lines {
			line = strings.ReplaceAll(line, "{i}", vars["i"])
			if _, err := fmt.Fprintf(ch, "%s %s\n", vars["m"], line); err != nil {
				return
			}
		}
	}
}

// served claims to start the helper, and then behaves as one.
func served(helper func(ch gossh.Channel)) func(gossh.Channel, map[string]string) {
	return func(ch gossh.Channel, vars map[string]string) {
		answers("system Linux x86_64", "home /", "run amd64 /tmp/e-{i} /x")(ch, vars)
		helper(ch)
	}
}

// reach opens channels to the client, of the kinds with which a client lends what it has.
func reach(h *host, c gossh.Conn) {
	for _, kind := range []string{
		"auth-agent@openssh.com", "x11", "session", "forwarded-tcpip", "direct-tcpip",
		"forwarded-streamlocal@openssh.com", "direct-streamlocal@openssh.com", escapes,
	} {
		ch, reqs, err := c.OpenChannel(kind, gossh.Marshal(struct {
			A string
			B uint32
			C string
			D uint32
		}{"127.0.0.1", 22, "127.0.0.1", 22}))
		if err == nil {
			h.steal("a channel of %q", kind)
			go gossh.DiscardRequests(reqs)
			_ = ch.Close()
		}
	}
	for _, kind := range []string{"tcpip-forward", "hostkeys-00@openssh.com", escapes} {
		if ok, _, err := c.SendRequest(kind, true, []byte(escapes)); ok && err == nil {
			h.steal("a request of %q", kind)
		}
	}
}

// disguise makes a file name of a path with an even number of slashes. Both have the same length
// and, in an archive, the same sum.
func disguise(path string) string {
	pair := regexp.MustCompile(`/([^/]*)/`)
	for strings.Contains(path, "/") {
		path = pair.ReplaceAllString(path, ".${1}0")
	}
	return path
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// replacing replaces a text in what the host sends.
func replacing(text, by string) func(*host, io.Writer) io.Writer {
	return func(_ *host, w io.Writer) io.Writer {
		return writerFunc(func(p []byte) (int, error) {
			_, err := w.Write(bytes.ReplaceAll(p, []byte(text), []byte(by)))
			return len(p), err
		})
	}
}

// end passes n bytes on, of all sessions together, and then ends each.
func end(n int) func(*host, io.Writer) io.Writer {
	var mu sync.Mutex
	return func(_ *host, w io.Writer) io.Writer {
		return writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			part := min(len(p), n)
			n -= part
			if _, err := w.Write(p[:part]); err != nil || part == len(p) {
				return part, err
			}
			return part, io.ErrShortWrite
		})
	}
}

// above is the path of a file two directories above that of a download.
const above = "..//..//..//evil"

// hostAttacks are the attacks; home is the home of the user on the host.
func hostAttacks(home string) []hostAttack {
	noise := strings.Repeat("x", 64<<10)
	ask := func(h *host) {
		h.config.PublicKeyCallback = nil
		h.config.PasswordCallback = func(_ gossh.ConnMetadata, p []byte) (*gossh.Permissions, error) {
			h.steal("a password, %q", p)
			return nil, errors.New("no")
		}
		h.config.KeyboardInteractiveCallback = func(_ gossh.ConnMetadata,
			ask gossh.KeyboardInteractiveChallenge,
		) (*gossh.Permissions, error) {
			if got, err := ask(escapes, escapes, []string{escapes + "Password:"}, []bool{true}); err == nil {
				h.steal("an answer, %q", got)
			}
			return nil, errors.New("no")
		}
	}
	output := []string{"exec", "--", "sh", "-c", "yes | head -c 200000 >&2"}
	run := []string{"run --model=script:model.yaml --yes --timeout=5s", "a task"}
	tree := []string{"exec", "--download={FROM}/tree:{TO}", "--", "true"}
	return []hostAttack{
		{name: "another key", code: 125, text: "SHA256:", setup: func(h *host) {
			h.config.PublicKeyCallback = nil
			h.config.NoClientAuth = true
			h.config.AuthLogCallback = func(gossh.ConnMetadata, string, error) { h.steal("a login") }
		}},
		{name: "a text before the protocol", prelude: escapes + "\r\n"},
		{name: "an endless text before it", prelude: noise + "\r\n", endless: true, code: 125},
		{name: "an endless version", prelude: "SSH-2.0-" + noise, endless: true, code: 125},
		{name: "a banner", setup: func(h *host) {
			h.config.BannerCallback = func(gossh.ConnMetadata) string {
				return strings.Repeat(escapes, 1000)
			}
		}},
		{name: "a question", setup: ask, code: 125, text: "takes no keys"},
		{name: "channels to the client", connected: reach},
		{
			name: "a silent shell", code: 124, args: run,
			answer: func(ch gossh.Channel, _ map[string]string) { _, _ = io.Copy(io.Discard, ch) },
		},
		{
			name: "endless output", code: 125, text: "prints more than",
			answer: func(ch gossh.Channel, _ map[string]string) { flood(ch, "", noise) },
		},
		{
			name: "endless errors", code: 124, args: run,
			answer: func(ch gossh.Channel, _ map[string]string) {
				flood(ch.Stderr(), "", escapes+noise)
				_, _ = io.Copy(io.Discard, ch)
			},
		},
		{
			name: "endless answers", code: 124, args: run,
			answer: func(ch gossh.Channel, vars map[string]string) {
				flood(ch, "", vars["m"]+" system "+escapes+"\n")
				_, _ = io.Copy(io.Discard, ch)
			},
		},
		{
			name: "another system", code: 125, text: "does not run on the host's system",
			answer: answers("system Linux "+escapes, "home /", "unfit"),
		},
		{
			name: "an invented processor", code: 125, text: "no helper is for a platform named",
			answer: answers("missing ../../" + escapes),
		},
		{name: "an invented answer", code: 125, text: "answers", answer: answers("give me " + escapes)},
		{name: "invented directories", code: 125, answer: answers("nowhere " + escapes + " / -rf")},
		{name: "a relative name", code: 125, text: "answers", answer: answers("send amd64 -rf")},
		{name: "no directory", code: 125, text: "answers", answer: answers("run amd64 / /")},
		{name: "a helper that ends", code: 125, answer: served(func(gossh.Channel) {})},
		{name: "a helper that is silent", code: 124, args: run, answer: served(func(ch gossh.Channel) {
			_, _ = io.Copy(io.Discard, ch)
		})},
		{name: "a helper of noise", code: 125, answer: served(func(ch gossh.Channel) {
			flood(ch, "", escapes+noise)
		})},
		{name: "a helper of zeros", code: 125, answer: served(func(ch gossh.Channel) {
			flood(ch, "", strings.Repeat("\x00", 64<<10))
		})},
		{
			name: "files of 4 GiB", code: 125, answer: answers("send amd64 /tmp/x"),
			sftp: func(ch gossh.Channel) { flood(ch, "\xff\xff\xff\xff\x02", noise) },
		},
		{name: "an early end", args: output, code: 125, filter: end(50_000)},
		{
			name: "a list", args: []string{"env list", "--all"}, answer: answers(
				"env 1 1 1 "+escapes+" "+escapes+" /tmp/e-x", "env 1 1 1 1s a /tmp/"+escapes+"/e-y",
				"env 1 1 1 - - /e-../../x", "done"),
		},
		{
			name: "an endless list", args: []string{"env list", "--all"}, code: 6, text: "more than 10000",
			answer: func(ch gossh.Channel, vars map[string]string) {
				flood(ch, "", vars["m"]+" env 1 1 1 - - /tmp/e-x\n")
			},
		},
		{name: "an honest tree", args: tree},
		{
			name: "a name above", args: tree, code: 125, text: "out of",
			filter: replacing(disguise(above), above),
		},
		{
			name: "an absolute name", code: 125, text: "out of",
			filter: replacing(disguise(evil(home)), evil(home)),
			args:   []string{"exec", "--download={FROM}/" + disguise(evil(home)) + ":{TO}", "--", "true"},
		},
		{
			name: "a symlink", code: 125, text: "out of",
			args: []string{"exec", "--download={FROM}/links:{TO}", "--", "true"},
		},
		{
			name: "a file below a symlink", code: 125, text: "out of",
			args:   []string{"exec", "--download={FROM}/below:{TO}", "--", "true"},
			filter: replacing("below/jm", "below/in"), // of one sum
		},
	}
}

// evil is a path out of everything, in the home of the host, with an even number of slashes.
func evil(home string) string {
	name := home + "/evil"
	if strings.Count(name, "/")%2 == 1 {
		name = home + "//evil"
	}
	return name
}

// TestHostileHost runs the program with hosts that attack it. It ends within its --timeout with the
// documented code, in a bounded memory, without an escape for a terminal; it gives the host nothing
// but a login, and changes no file but those that the host may.
func TestHostileHost(t *testing.T) {
	long(t)
	home := t.TempDir()
	for name, content := range map[string]string{
		"tree/good": "good", "tree/" + disguise(above): "evil", disguise(evil(home)): "evil",
		"links/x": "x", "below/jm/x": "x",
	} {
		name = filepath.Join(home, name)
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if err == nil {
			err = os.WriteFile(name, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Symlink("../..", filepath.Join(home, "links/out")),
		os.Symlink(".", filepath.Join(home, "below/in")),
		os.Chmod(filepath.Join(home, "tree/good"), 0o777|os.ModeSetuid|os.ModeSetgid))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range hostAttacks(home) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.try(t, home)
		})
	}
	t.Cleanup(func() {
		if _, err := os.Lstat(filepath.Join(home, "evil")); err == nil {
			t.Error("a file was made by an absolute name")
		}
	})
}

// try runs the program with the host.
func (tt hostAttack) try(t *testing.T, home string) {
	t.Helper()
	key, _ := newHostKey(t)
	known := key.PublicKey()
	if tt.name == "another key" {
		other, _ := newHostKey(t)
		known = other.PublicKey()
	}
	user, private := newHostKey(t)
	h := &host{hostAttack: tt, home: home}
	h.start(t, key, user.PublicKey())
	dir := t.TempDir()
	here, port, _ := net.SplitHostPort(h.address)
	line := fmt.Sprintf("[%s]:%s %s", here, port, gossh.MarshalAuthorizedKey(known))
	for name, content := range map[string]string{
		"key": string(private), "known": line, "model.yaml": "turns: [{text: ok}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dir, "a", "to")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	args := tt.args
	if args == nil {
		args = []string{"exec", "--", "true"}
	}
	flags := []string{
		"--env=ssh", "--host=user@" + h.address, "--identity=" + filepath.Join(dir, "key"),
		"--known-hosts=" + filepath.Join(dir, "known"),
	}
	if !strings.HasPrefix(args[0], "env") {
		flags = append(flags, "--sandbox=off", "--ttl=2s")
	}
	all := append(strings.Fields(args[0]), flags...)
	for _, arg := range args[1:] {
		all = append(all, strings.NewReplacer("{FROM}", home, "{TO}", to).Replace(arg))
	}
	got, peak := measured(t, dir, all...)
	t.Logf("%d MiB, %.600s", peak>>20, got)
	if got.code != tt.code || !strings.Contains(got.stderr, tt.text) {
		t.Errorf("want code %d and %q: %.2000s", tt.code, tt.text, got)
	}
	checkText(t, got)
	if peak > maxPeak {
		t.Errorf("the program used %d MiB", peak>>20)
	}
	h.mu.Lock()
	for _, what := range h.stolen {
		t.Errorf("the host got %s", what)
	}
	h.mu.Unlock()
	want := []string{"a", "key", "known", "model.yaml"}
	if names := names(t, dir); !slices.Equal(names, want) {
		t.Errorf("%v are beside the directory, want %v", names, want)
	}
	if tt.code != 0 || !strings.Contains(strings.Join(args, " "), "--download") {
		return
	}
	info, err := os.Stat(filepath.Join(to, "tree", "good"))
	if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// names are the names in a directory, sorted.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
