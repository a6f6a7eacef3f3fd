package sandbox

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestNetwork listens outside of the sandbox, and connects from it.
func TestNetwork(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	abstract, err := net.Listen("unix", "@sandbox-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = abstract.Close() })
	inTurn(t, func(t *testing.T, w *world, by Mechanism) {
		named := listen(t, w.out+"/socket")
		privateDirs := listen(t, t.TempDir()+"/socket")
		for _, tt := range []struct {
			what, dial string
			// open means that it works with a network, by mechanism.
			open map[Mechanism]bool
		}{
			{"TCP", "tcp " + tcp.Addr().String(), map[Mechanism]bool{Bubblewrap: true, Landlock: true}},
			{"UDP", "udp " + udp.LocalAddr().String(), map[Mechanism]bool{Bubblewrap: true, Landlock: true}},
			{"the metadata address", "tcp 169.254.169.254:80", nil},
			{"an abstract socket", "unix " + abstract.Addr().String(), map[Mechanism]bool{Bubblewrap: true}},
			{"a socket with a name", "unix " + named, map[Mechanism]bool{}},
			{"a socket in a directory for temporary files", "unix " + privateDirs, map[Mechanism]bool{}},
		} {
			for _, network := range []bool{false, true} {
				if network && tt.open == nil {
					continue // nothing leaves this machine
				}
				w.policy.Network = network
				out, code := w.run(t, by, "$DO dial "+tt.dial)
				want := network && tt.open[by]
				switch version, _ := landlockABI(); {
				case version >= socketABI && strings.HasPrefix(tt.dial, "unix /"),
					version >= scopeABI && strings.HasPrefix(tt.dial, "unix @"):
					want = false
				}
				if tt.what == "UDP" && by == Bubblewrap {
					continue // it can be sent, without a receiver
				}
				if (code == 0) != want || code == 125 {
					t.Errorf("%s, with a network %t: exit code %d, %s", tt.what, network, code, out)
				}
			}
		}
		// They arrive in their order: any of the one without a network, that of the one with one, and
		// that of this program.
		for _, want := range []string{"hello", "last"} {
			if want == "last" {
				c, err := net.Dial("udp", udp.LocalAddr().String())
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Write([]byte(want))
				if err := errors.Join(err, c.Close()); err != nil {
					t.Fatal(err)
				}
			}
			buf := make([]byte, 100)
			if err := udp.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if n, _, err := udp.ReadFrom(buf); err != nil || string(buf[:n]) != want {
				t.Errorf("the datagram %q has arrived, %v; want %q", buf[:n], err, want)
			}
		}
	})
}

// listen listens on a unix socket that everybody may connect to.
func listen(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := errors.Join(os.Chmod(name, 0o777), os.Chmod(filepath.Dir(name), 0o755),
		os.Chmod(filepath.Dir(filepath.Dir(name)), 0o755)); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestProcesses lists a process outside, and sends it a signal.
func TestProcesses(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		victim := exec.CommandContext(t.Context(), "sleep", "4719")
		victim.SysProcAttr = w.credential()
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
		pid := strconv.Itoa(victim.Process.Pid)
		out, code := w.run(t, by, "$DO kill "+pid)
		if version, _ := landlockABI(); by == Bubblewrap || version >= scopeABI {
			if code == 0 || code == 125 {
				t.Errorf("a signal: exit code %d, %s", code, out)
			}
		}
		out, _ = w.run(t, by, `cat /proc/[0-9]*/cmdline | tr '\0' ' '`)
		if strings.Contains(out, "sleep 4719") != (by == Landlock) {
			t.Errorf("it sees the processes %q", out)
		}
		if out, code := w.run(t, by, "$DO ptrace "+pid); code == 0 {
			t.Errorf("it attaches to a process outside: %s", out)
		}
	})
}

// TestSetuid starts a program of root's that gives its rights to whoever runs it.
func TestSetuid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make such a program")
	}
	for _, by := range Mechanisms() {
		t.Run(string(by), func(t *testing.T) {
			need(t, by)
			w := newWorld(t)
			w.as(t, nobody)
			self, err := os.ReadFile("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			name := w.out + "/setuid"
			if err := errors.Join(os.WriteFile(name, self, 0o755), os.Chown(name, 0, 0), os.Chmod(name,
				0o755|fs.ModeSetuid)); err != nil {
				t.Fatal(err)
			}
			if out, code := w.run(t, by, `"$OUT/setuid" do euid`); code != 0 ||
				strings.TrimSpace(out) != strconv.Itoa(nobody) {
				t.Errorf("exit code %d, its user is %s", code, out)
			}
		})
	}
}

// TestWidened names what may be changed, and what may be read, besides.
func TestWidened(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		w.policy.Write = []string{w.out}
		w.policy.Read = []string{w.home + "/.ssh"}
		if out, code := w.run(t, by, `echo x >"$OUT/new" && cat "$HOME/.ssh/id" && `+
			`! echo x >"$HOME/.ssh/id"`); code != 0 {
			t.Errorf("exit code %d, %s", code, out)
		}
		if w.content("out/new") != "x\n" ||
			w.content("home/.ssh/id") != "content of home/.ssh/id\n" {
			t.Errorf("the files hold %q and %q", w.content("out/new"), w.content("home/.ssh/id"))
		}
		w.policy.Write, w.policy.Read = nil, nil
		w.vars["KUBECONFIG"] = "/nowhere/config:" + w.out + "/file"
		w.policy.Hide = []string{w.home + "/plain", w.home + "/missing"}
		if out, _ := w.run(t, by, `cat "$OUT/file" "$HOME/plain"`); strings.Contains(out, "content") {
			t.Errorf("printed %q", out)
		}
	})
}

// TestClosedFolder has a home in a directory that cannot be listed, as /home on machines of many
// users.
func TestClosedFolder(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		if err := errors.Join(os.Chown(w.root, 0, 0), os.Chmod(w.root, 0o711)); err != nil {
			t.Skip(err)
		}
		if out, code := w.run(t, by, `cat "$HOME/go/file" "$WORK/file" && `+
			`! cat "$HOME/.ssh/id" && ! cat "$HOME/plain"`); code != 0 ||
			!strings.Contains(out, "content of home/go/file") {
			t.Errorf("exit code %d, %s", code, out)
		}
	})
}

// TestCaches shares a cache of the user that Write names, and has a private one otherwise.
func TestCaches(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"home/.cache/go-build", "home/.npm", "out/pip"} {
		if err := os.MkdirAll(filepath.Join(w.root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.vars["PIP_CACHE_DIR"] = w.out + "/pip"
	for allowed, want := range map[string]map[string]string{
		"": {
			"GOCACHE":       "/temp/.cache/go-build",
			"PIP_CACHE_DIR": "/temp/.cache/pip", "XDG_CACHE_HOME": "/temp/.cache",
		},
		w.home + "/.cache/go-build": {
			"GOCACHE":       w.home + "/.cache/go-build",
			"PIP_CACHE_DIR": "/temp/.cache/pip", "XDG_CACHE_HOME": "/temp/.cache",
		},
		w.home + "/.cache": {"GOCACHE": w.home + "/.cache/go-build", "XDG_CACHE_HOME": w.home +
			"/.cache", "npm_config_cache": "/temp/.cache/npm"},
		w.home + "/.npm": {"npm_config_cache": w.home + "/.npm"},
		w.out: {
			"PIP_CACHE_DIR": w.out + "/pip",
			"GOCACHE":       "/temp/.cache/go-build",
		},
	} {
		w.policy.Write = nil
		if allowed != "" {
			w.policy.Write = []string{allowed}
		}
		p, err := resolvePolicy(
			w.policy, []string{w.home}, func(name string) string { return w.vars[name] },
		)
		if err != nil {
			t.Fatal(err)
		}
		p.unlock()
		p.Temp = "/temp"
		got := map[string]string{}
		for _, v := range p.Vars() {
			name, value, _ := strings.Cut(v, "=")
			got[name] = value
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("with %q allowed, %s is %q, want %q", allowed, name, got[name], value)
			}
		}
	}
}

// TestLaterSecrets has secrets that come into being, or are replaced, while a program is confined.
func TestLaterSecrets(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		if _, err := landlockABI(); err != nil {
			t.Skip(err)
		}
		changed := make(chan error, 1)
		go func() {
			for !exists(w.work + "/ready") {
				time.Sleep(time.Millisecond)
			}
			err := errors.Join(
				os.WriteFile(w.home+"/new", []byte("later\n"), 0o644),
				os.Rename(w.home+"/new", w.home+"/.netrc"),
				os.WriteFile(w.home+"/.git-credentials", []byte("later\n"), 0o644),
				os.WriteFile(w.home+"/later", []byte("later\n"), 0o644),
				os.Mkdir(w.home+"/.aws", 0o755),
				os.WriteFile(w.home+"/.aws/credentials", []byte("later\n"), 0o644),
				os.Rename(w.home+"/.ssh", w.home+"/old"),
				os.Mkdir(w.home+"/.ssh", 0o755),
				os.WriteFile(w.home+"/.ssh/id", []byte("later\n"), 0o644),
			)
			changed <- errors.Join(err, os.WriteFile(w.work+"/go", nil, 0o644))
		}()
		out, _ := w.run(
			t,
			by,
			`cd "$HOME"; : >"$WORK/ready"; while ! [ -e "$WORK/go" ]; do sleep 0.01; done
			cat .netrc .git-credentials .aws/credentials .ssh/id old/id later
			[ -e .aws/credentials ] && echo seen; cat go/file`,
		)
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		// With bubblewrap the home is another directory.
		if strings.Contains(out, "later\n") || strings.Contains(out, "content of home/.ssh") ||
			strings.Contains(out, "content of home/.netrc") ||
			strings.Contains(out, "seen") != (by == Landlock) ||
			!strings.Contains(out, "content of home/go/file") {
			t.Errorf("printed %q", out)
		}
	})
}

// TestLaterMount mounts something outside while a confined program runs.
func TestLaterMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	for _, by := range Mechanisms() {
		t.Run(string(by), func(t *testing.T) {
			need(t, by)
			if _, err := landlockABI(); err != nil {
				t.Skip(err)
			}
			w := newWorld(t)
			var undo func() error
			t.Cleanup(func() {
				if undo != nil {
					if err := undo(); err != nil {
						t.Error(err)
					}
				}
			})
			// A shared mount, as on a system with systemd: mounts below it propagate.
			err := errors.Join(unix.Mount(w.out, w.out, "", unix.MS_BIND, ""),
				unix.Mount("", w.out, "", unix.MS_SHARED, ""))
			if err != nil {
				t.Skip(err)
			}
			undo = func() error { return unix.Unmount(w.out, unix.MNT_DETACH) }
			if err := os.Mkdir(w.out+"/stick", 0o777); err != nil {
				t.Fatal(err)
			}
			changed := make(chan error, 1)
			go func() {
				for !exists(w.work + "/ready") {
					time.Sleep(time.Millisecond)
				}
				err := unix.Mount("none", w.out+"/stick", "tmpfs", 0, "mode=777")
				changed <- errors.Join(err, os.WriteFile(w.work+"/go", nil, 0o644))
			}()
			out, _ := w.run(t, by, `: >"$WORK/ready"; while ! [ -e "$WORK/go" ]; do sleep 0.01; done
				grep -q "$OUT/stick" /proc/self/mountinfo && echo arrived
				echo x >"$OUT/stick/file" && echo written`)
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "arrived") || strings.Contains(out, "written") ||
				exists(w.out+"/stick/file") {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// TestCores checks that core dumps are off.
func TestCores(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		if out, code := w.run(t, by, `ulimit -H -c`); code != 0 || out != "0\n" {
			t.Errorf("exit code %d, %s", code, out)
		}
	})
}

// TestNoProject refuses directories that are not those of a project.
func TestNoProject(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]string{
		"/": "home directory", "/usr": "whole machine", "/etc": "whole machine", "/tmp": "whole machine",
		"/proc/self": "cannot allow changes", "/dev/shm": "cannot allow changes",
		w.home: "home directory", w.root: "home directory",
	} {
		w.policy.Dir = name
		if _, err := resolvePolicy(w.policy, []string{"/nonexistent", w.home}, os.Getenv); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestSecretsInWork hides files in the working directory, which only bubblewrap can.
func TestSecretsInWork(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	w.policy.Hide = []string{w.work + "/file", w.work + "/.git"}
	if out, code := w.run(t, Bubblewrap, `cat "$WORK/file" "$WORK"/.git/*; echo x >"$WORK/file"; `+
		`echo x >"$WORK/new"`); code != 0 ||
		strings.Contains(out, "content") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if w.content("work/file") != "content of work/file\n" {
		t.Errorf("the file has %q", w.content("work/file"))
	}
	need(t, Landlock)
	p := w.plan(t, Landlock)
	for _, g := range p.Guarantees() {
		if g.Name == env.HiddenSecrets &&
			(g.Strength != env.BestEffort || !strings.Contains(g.By, w.work+"/.git and "+w.work+"/file")) {
			t.Errorf("Landlock cannot hide them, and guarantees %+v", g)
		}
	}
}

// TestTemporaryDir works in a temporary directory, from which the others are hidden.
func TestTemporaryDir(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	dir, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(other+"/file", []byte("other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	private := "/tmp/private-" + rand.Text()
	w.policy.Dir = dir
	if out, code := w.run(t, Bubblewrap, `echo x >"`+dir+`/new" && ! cat "`+other+`/file" && `+
		`echo y >`+private+` && cat `+private); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	if data, err := os.ReadFile(dir + "/new"); err != nil || string(data) != "x\n" {
		t.Errorf("%q, %v", data, err)
	}
	if exists(private) {
		t.Error("a temporary file is seen outside")
	}
}

// TestShownSockets has sockets in the visible parts of directories that are otherwise empty, and in
// readable directories.
func TestShownSockets(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	tree, read := t.TempDir(), t.TempDir()
	for _, dir := range []string{"/.git", "/sub", "/other"} {
		if err := os.Mkdir(tree+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tree+"/.git/HEAD", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.home+"/.gnupg", 0o755); err != nil {
		t.Fatal(err)
	}
	w.policy = Policy{Dir: tree + "/sub", Read: []string{read, w.home + "/.gnupg"}}
	w.vars["HISTFILE"] = os.DevNull
	for _, name := range []string{tree + "/other/socket", read + "/socket", w.home +
		"/.gnupg/socket"} {
		if out, code := w.run(t, Bubblewrap, "$DO dial unix "+listen(t, name)); code != 1 {
			t.Errorf("%s: exit code %d, %s", name, code, out)
		}
	}
	named := listen(t, read+"/named")
	w.policy.Read = append(w.policy.Read[1:], named)
	if out, code := w.run(t, Bubblewrap, "$DO dial unix "+named); code != 0 {
		t.Errorf("a socket that is named: exit code %d, %s", code, out)
	}
}

// TestUsable has root work in directories of others.
func TestUsable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w := newWorld(t)
	if err := CheckAccess(w.work); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(w.work, 0); err != nil {
		t.Fatal(err)
	}
	var unable *Error
	if err := CheckAccess(w.work); err == nil || errors.As(err, &unable) {
		t.Errorf("root itself is kept out: %v", err)
	}
	if err := os.Chmod(w.work, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func() error{
		func() error { return os.Chown(w.work, nobody, nobody) },
		func() error {
			return errors.Join(os.Chown(w.work, 0, 0), os.Chown(w.root, nobody, nobody), os.Chmod(w.root,
				0o700))
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := CheckAccess(w.work); err == nil ||
			!strings.Contains(err.Error(), "belongs to user 65534") {
			t.Errorf("error %v", err)
		}
	}
}
