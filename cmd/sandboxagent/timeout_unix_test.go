//go:build unix

package main

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// minutes is more than the time of any run in these tests, and less than a wait for an
// environment without their timeouts.
const minutes = 4 * time.Minute

// timesOut runs a task that times out, and checks that the run ends by itself, with the code of a
// timeout. A run that was not reached yet, as happens on a busy machine, is tried again with a
// longer timeout.
func timesOut(
	t *testing.T, newRun func(timeout time.Duration) *process, reached func(*process) bool,
) {
	t.Helper()
	for timeout := time.Second; ; timeout *= 4 {
		p, began := newRun(timeout), time.Now()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t); code != codeTimeout {
			t.Errorf("exit code %d, want %d", code, codeTimeout)
		}
		if took := time.Since(began); took > minutes {
			t.Errorf("the run ended after %v", took)
		}
		var record struct {
			Status string `json:"status"`
			Code   int    `json:"exit_code"`
		}
		if err := json.Unmarshal(p.stdout.Bytes(), &record); err != nil ||
			record.Code != codeTimeout || record.Status != "timed_out" {
			t.Errorf("the record is %+v, %v", record, err)
		}
		switch {
		case t.Failed(), reached(p):
			return
		case timeout > time.Minute:
			t.Fatalf("after %v the run was not where it should be", timeout)
		}
	}
}

// waitsFor checks the error of a run that has timed out: it contains text, which names the step
// that the run was in.
func waitsFor(text string) func(*process) bool {
	return func(p *process) bool {
		_, report, _ := strings.Cut(p.stderr.String(), "sandboxagent: the run timed out (--timeout)")
		return strings.Contains(report, text)
	}
}

// newTimeoutRun returns the program with a run that has a timeout. Its environment may take as long
// to end, instead of the half minute of users.
func newTimeoutRun(t *testing.T, timeout time.Duration, flags ...string) *process {
	t.Helper()
	p := newProcess(t, append([]string{
		"run", "--yes", "--timeout=" + timeout.String(), "--model=script:model.yaml", "--output=json",
	}, append(flags, "a task")...)...)
	home := t.TempDir()
	p.Env = append(p.Env, patienceVar+"="+timeout.String(), "HOME="+home, "SSH_AUTH_SOCK=",
		"DOCKER_CONFIG="+home)
	p.writeFile(t, "model.yaml", "turns:\n  - text: done\n")
	return p
}

// runTimesOut is timesOut for a run with flags and variables that waits for something.
func runTimesOut(t *testing.T, waitedFor string, vars []string, flags ...string) {
	t.Helper()
	timesOut(t, func(timeout time.Duration) *process {
		p := newTimeoutRun(t, timeout, flags...)
		p.Env = append(p.Env, vars...)
		return p
	}, waitsFor(waitedFor))
}

// accept accepts connections until the end of the test and handles each.
func accept(t *testing.T, network, address string, handle func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var working sync.WaitGroup
	working.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			working.Go(func() { handle(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		working.Wait()
	})
	return l
}

// TestTimeoutBoundsTask waits for a task on standard input.
func TestTimeoutBoundsTask(t *testing.T) {
	t.Parallel()
	timesOut(t, func(timeout time.Duration) *process {
		p := newTimeoutRun(t, timeout)
		p.Args[len(p.Args)-1] = "-"
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() }) // nothing was written
		return p
	}, waitsFor("read the task from standard input"))
}

// sshHost is a server of SSH whose shell misbehaves.
type sshHost struct{ address, identity, known string }

func (h sshHost) flags() []string {
	return []string{
		"--env=ssh", "--host=user@" + h.address, "--identity=" + h.identity,
		"--known-hosts=" + h.known,
	}
}

// newSSHHost starts a server that lets everybody in. shell serves each command.
func newSSHHost(t *testing.T, shell func(gossh.Channel)) sshHost {
	t.Helper()
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	config := &gossh.ServerConfig{
		PublicKeyCallback: func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions, error) {
			return nil, nil
		},
	}
	config.AddHostKey(signer)
	l := accept(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		_, channels, requests, err := gossh.NewServerConn(c, config)
		if err != nil {
			return
		}
		go gossh.DiscardRequests(requests)
		for request := range channels {
			channel, requests, err := request.Accept()
			if err != nil {
				return
			}
			go func() {
				for r := range requests {
					_ = r.Reply(true, nil)
				}
			}()
			go shell(channel)
		}
	})
	dir := t.TempDir()
	h := sshHost{l.Addr().String(), filepath.Join(dir, "key"), filepath.Join(dir, "known")}
	key, err := gossh.MarshalPrivateKey(hostKey, "") // any key will do
	if err != nil {
		t.Fatal(err)
	}
	known := knownhosts.Line([]string{h.address}, signer.PublicKey()) + "\n"
	for name, data := range map[string][]byte{
		h.identity: pem.EncodeToMemory(key), h.known: []byte(known),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// fakeHelper writes a file that passes for a helper.
func fakeHelper(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 64,
		Phentsize: 56, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if err := binary.Write(&b, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestTimeoutBoundsSSH runs tasks on hosts that never become an environment.
func TestTimeoutBoundsSSH(t *testing.T) {
	t.Parallel()
	t.Run("silent server", func(t *testing.T) {
		t.Parallel()
		l := accept(t, "tcp", "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		host := "user@" + l.Addr().String()
		runTimesOut(t, "connect to "+host, nil, "--env=ssh", "--host="+host)
	})
	t.Run("silent login", func(t *testing.T) {
		t.Parallel()
		h := newSSHHost(t, func(c gossh.Channel) { _, _ = io.Copy(io.Discard, c) })
		runTimesOut(t, "start on user@"+h.address, nil, h.flags()...)
	})
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("login that floods stderr, reading %v", reads), func(t *testing.T) {
			t.Parallel()
			h := newSSHHost(t, func(c gossh.Channel) {
				if reads {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				for flood := bytes.Repeat([]byte("noise "), 1000); ; {
					if _, err := c.Stderr().Write(flood); err != nil {
						return
					}
				}
			})
			runTimesOut(t, "start on user@"+h.address, nil, h.flags()...)
		})
	}
	t.Run("helper without a hello", func(t *testing.T) {
		t.Parallel()
		h := newSSHHost(t, func(c gossh.Channel) {
			set := regexp.MustCompile(`^([mi])='(.*)'$`)
			vars := make(map[string]string)
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if v := set.FindStringSubmatch(lines.Text()); v != nil {
					vars[v[1]] = v[2]
				}
				if vars["m"] != "" && vars["i"] != "" {
					fmt.Fprintf(c, "%[1]s home /nowhere\n%[1]s run %[2]s /nowhere/e-%[3]s /nowhere/helper\n",
						vars["m"], runtime.GOARCH, vars["i"])
					break
				}
			}
			_, _ = io.Copy(io.Discard, c)
		})
		flags := append(h.flags(), "--helper-binary="+fakeHelper(t))
		runTimesOut(t, "start on user@"+h.address, nil, flags...)
	})
}

// fakeDaemon serves Docker's API on a unix socket and returns the variable that selects it. It
// knows every image and volume; answer serves a call in its place if it returns true.
func fakeDaemon(
	t *testing.T, answer func(http.ResponseWriter, *http.Request) bool,
) (address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "docker") //nolint:usetesting // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`^/v[0-9.]+`)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = version.ReplaceAllString(r.URL.Path, "")
			w.Header().Set("Api-Version", "1.45")
			w.Header().Set("Ostype", "linux")
			switch {
			case answer(w, r):
			case r.URL.Path == "/info":
				fmt.Fprint(w, `{"OSType":"linux","Architecture":"`+map[string]string{
					"amd64": "x86_64", "arm64": "aarch64",
				}[runtime.GOARCH]+`","NCPU":8,"SecurityOptions":["name=seccomp,profile=builtin"]}`)
			case strings.HasPrefix(r.URL.Path, "/images/"):
				fmt.Fprintf(w, `{"Id":"sha256:1","Os":"linux","Architecture":%q,"Config":{}}`, runtime.GOARCH)
			case r.URL.Path == "/containers/create":
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, `{"Id":"c1"}`)
			case strings.HasSuffix(r.URL.Path, "/start"), r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			default:
				fmt.Fprint(w, `{}`)
			}
		})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "DOCKER_HOST=unix://" + filepath.Join(dir, "s")
}

// TestTimeoutBoundsDocker runs tasks with daemons that never make an environment.
func TestTimeoutBoundsDocker(t *testing.T) {
	t.Parallel()
	// hang serves a call by silence.
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	for _, tt := range []struct {
		name      string
		answer    func(http.ResponseWriter, *http.Request) bool
		waitedFor string
	}{
		{"silent", hang, "docker"},
		{"endless pull", func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.HasPrefix(r.URL.Path, "/images/") && r.URL.Path != "/images/create":
				http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
				return true
			case r.URL.Path != "/images/create":
				return false
			}
			for i := 0; r.Context().Err() == nil; i++ {
				fmt.Fprintf(w, `{"status":"Downloading","id":"layer","progressDetail":{"current":%d}}`+"\n", i)
				if err := http.NewResponseController(w).Flush(); err != nil {
					return true
				}
				time.Sleep(10 * time.Millisecond)
			}
			return true
		}, "pull"},
		{"silent creation", func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/containers/create" && hang(w, r)
		}, "docker"},
		{"silent removal", func(w http.ResponseWriter, r *http.Request) bool {
			return (r.Method == http.MethodDelete || strings.HasSuffix(r.URL.Path, "/attach")) && hang(w, r)
		}, "docker"},
		{"helper without a hello", func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/attach") {
				return false
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return true
			}
			defer c.Close() //nolint:errcheck // it is the client's to notice
			fmt.Fprint(c, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"+
				"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
			return true
		}, "docker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			runTimesOut(t, tt.waitedFor, []string{fakeDaemon(t, tt.answer)},
				"--env=docker", "--image=img:1", "--helper-binary="+fakeHelper(t))
		})
	}
}

// TestTimeoutBoundsFrozenHelper freezes the helper in the middle of a run.
func TestTimeoutBoundsFrozenHelper(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{}, {"--patch=out.diff"}, {"--download=a"}} {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			if testing.Short() && !slices.Contains(flags, "--patch=out.diff") {
				t.Skip("waits 15 s for the helper")
			}
			t.Parallel()
			var text []byte
			timesOut(t, func(timeout time.Duration) *process {
				p := newTimeoutRun(t, timeout, append(slices.Clone(flags), "--sandbox=off")...)
				p.writeFile(t, "freeze.sh", "kill -STOP $PPID; echo $PPID >h; mv h helper; "+
					"while :; do sleep 1; done")
				p.writeFile(t, "model.yaml", `turns:
  - calls: [{tool: shell, args: {command: 'exec sh freeze.sh MARKER'}}]
  - text: done
`)
				return p
			}, func(p *process) bool {
				p.leavesNothing(t, true)
				var err error
				text, err = os.ReadFile(filepath.Join(p.dir, "helper"))
				if err == nil && !strings.Contains(p.stderr.String(), "was not checked completely") {
					t.Error("no line reports that the working directory is not checked")
				}
				return err == nil
			})
			helper, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			await(t, "the end of the helper", func() bool {
				// a zombie has no arguments
				args, _ := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(helper)).Output()
				return len(bytes.TrimSpace(args)) == 0 || bytes.Contains(args, []byte("<defunct>"))
			})
		})
	}
}
