//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeDocker is a Docker daemon that lists and removes containers.
type fakeDocker struct {
	host string

	mu         sync.Mutex
	containers []map[string]any
	removed    []string
}

// newFakeDocker starts a daemon with a container for each session, by its owner.
func newFakeDocker(t *testing.T, owners map[string]string) *fakeDocker {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake") //nolint:usetesting // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s")) //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDocker{host: "unix://" + l.Addr().String()}
	for session, owner := range owners {
		d.containers = append(d.containers, map[string]any{
			"Id": session, "Names": []string{"/sandboxagent-" + session}, "State": "running",
			"Labels": map[string]string{
				"sandboxagent.kind": "sandbox", "sandboxagent.session": session,
				"sandboxagent.owner": owner,
			},
		})
	}
	server := httptest.NewUnstartedServer(d)
	_ = server.Listener.Close() // l replaces it
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return d
}

func (d *fakeDocker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Ostype", "linux")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/containers/json"):
		_ = json.NewEncoder(w).Encode(d.containers)
	case strings.HasSuffix(r.URL.Path, "/info"):
		_, _ = w.Write([]byte(`{"ServerVersion": "99.1"}`))
	case strings.HasSuffix(r.URL.Path, "/volumes"):
		_, _ = w.Write([]byte("{}"))
	case r.Method == http.MethodDelete:
		d.removed = append(d.removed, path.Base(r.URL.Path))
		w.WriteHeader(http.StatusNoContent)
	case path.Base(r.URL.Path) != "_ping":
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message": "none"}`))
	}
}

// me returns this user on this machine, as containers name their owner.
func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username + "@" + host
}

// keep stores an environment of d in the state directory of p.
func (d *fakeDocker) keep(t *testing.T, p *process, session string) (name string) {
	t.Helper()
	dir := filepath.Join(p.dir, ".state", keptDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(dir, session+keptSuffix)
	text := fmt.Sprintf(`{"backend": "docker", "stored": {"session": %q, "token": "x", "ttl": 1,
"container": "x", "daemon": %q}}`, session, d.host)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// call runs the program with a daemon, and prepare before it.
func (d *fakeDocker) call(t *testing.T, prepare func(*process), args ...string) *process {
	t.Helper()
	p := newProcess(t, args...)
	p.Env = append(p.Env, "DOCKER_HOST="+d.host, "DOCKER_CONFIG="+p.dir)
	if prepare != nil {
		prepare(p)
	}
	_ = p.Run() // ProcessState has the exit code
	return p
}

// TestEnvListOwn checks that env list shows the environments of others only with --all.
func TestEnvListOwn(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, map[string]string{"aaa1": me(t), "bbb1": "x@y", "ccc1": "x@y"})
	kept := func(p *process) { d.keep(t, p, "ccc1") }
	for _, tt := range []struct {
		args   []string
		want   string
		others bool
	}{
		{[]string{"env", "list"}, "NAME sandboxagent-aaa1 sandboxagent-ccc1", true},
		{
			[]string{"env", "list", "--all"},
			"NAME sandboxagent-aaa1 sandboxagent-bbb1 sandboxagent-ccc1", false,
		},
	} {
		p := d.call(t, kept, tt.args...)
		var names []string
		for line := range strings.Lines(p.stdout.String()) {
			names = append(names, strings.Fields(line)[0])
		}
		others := strings.Contains(p.stderr.String(), "not listed: 1 (--all")
		if got := strings.Join(names, " "); got != tt.want || others != tt.others ||
			p.ProcessState.ExitCode() != 0 {
			t.Errorf("%q: %q, stderr %q", tt.args, got, p.stderr.String())
		}
	}
}

// TestEnvRemove removes environments by their names and by starts of them, but none of others.
func TestEnvRemove(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ids, removed string
		left         int // files of kept environments
		code         int
		text         string
	}{
		{"ccc1", "ccc1", 2, 0, ""},
		{"c", "ccc1", 2, 0, ""},
		{"sandboxagent-c", "ccc1", 2, 0, ""},
		{"c ddd1", "ccc1 ddd1", 1, 0, ""},
		{"a", "aaa1", 3, 0, ""}, // no file has it, but its container names the owner
		{"b", "", 3, 2, `unknown environment "b"`},
		{"ddd", "", 3, 2, `"ddd" is the start of 2 names of environments: "ddd1", "ddd2"`},
		{"b c", "ccc1", 2, 2, `unknown environment "b"`},
		{"", "", 3, 2, "the name of the environment is missing"},
		{"../x", "", 3, 2, "is not the name of an environment"},
	} {
		t.Run(tt.ids, func(t *testing.T) {
			t.Parallel()
			d := newFakeDocker(t, map[string]string{"aaa1": me(t), "bbb1": "x@y"})
			p := d.call(t, func(p *process) {
				for _, session := range []string{"ccc1", "ddd1", "ddd2"} {
					d.keep(t, p, session)
				}
			}, append([]string{"env", "rm"}, strings.Fields(tt.ids)...)...)
			d.mu.Lock()
			defer d.mu.Unlock()
			var removed []string
			for _, name := range d.removed {
				name = strings.TrimPrefix(name, "sandboxagent-")
				if !strings.HasSuffix(name, "-loader") && !strings.HasSuffix(name, "-fill") {
					removed = append(removed, name)
				}
			}
			slices.Sort(removed)
			want := ""
			for _, name := range strings.Fields(tt.removed) {
				want += "removed " + name + "\n"
			}
			left, err := os.ReadDir(filepath.Join(p.dir, ".state", keptDir))
			if strings.Join(removed, " ") != tt.removed || p.stdout.String() != want ||
				len(left) != tt.left || err != nil {
				t.Errorf("removed %q, stdout %q, %d files are left: %v", removed, p.stdout.String(),
					len(left), err)
			}
			if got := p.ProcessState.ExitCode(); got != tt.code ||
				!strings.Contains(p.stderr.String(), tt.text) {
				t.Errorf("exit code %d, stderr %q", got, p.stderr.String())
			}
		})
	}
}

// TestEnvRemoveWithoutDaemon removes an environment that only a daemon could know.
func TestEnvRemoveWithoutDaemon(t *testing.T) {
	t.Parallel()
	p := newFakeDocker(t, nil).call(t, func(p *process) {
		p.Env = append(p.Env, "DOCKER_HOST=unix://"+p.dir+"/none.sock")
	}, "env", "rm", "b")
	for _, part := range []string{`unknown environment "b"`, "none.sock", "start one"} {
		if !strings.Contains(p.stderr.String(), part) {
			t.Errorf("no %q in %q", part, p.stderr.String())
		}
	}
	if got := p.ProcessState.ExitCode(); got != 6 {
		t.Errorf("exit code %d", got)
	}
}

// TestEnvID checks the flags beside --env-id.
func TestEnvID(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, nil)
	for _, tt := range []struct {
		args string
		code int
		text string
	}{
		{"exec --env-id=c --image=x -- true", 125, "--image has no effect with --env-id"},
		{"exec --env-id=c --env=docker -- true", 125, "--env has no effect with --env-id"},
		{"exec --env-id=c --workdir=. -- true", 125, "--workdir has no effect with --env-id"},
		{"exec --env-id=c --apply -- true", 125, "--apply has no effect with --env-id"},
		{"tool --env-id=c --keep list_dir", 2, "--keep has no effect with --env-id"},
		{"run --env-id=c --sandbox=off --model=script:x x", 2, "--sandbox has no effect with --env-id"},
		{"exec --env-id=d -- true", 125, `unknown environment "d"`},
		{"env attach d -- true", 125, `unknown environment "d"`},
		{"exec --env-id=c -- true", 125, "is gone"},
	} {
		p := d.call(t, func(p *process) {
			d.keep(t, p, "ccc1")
			p.Env = append(p.Env, "SANDBOXAGENT_PULL=never") // a variable is ignored
		}, strings.Fields(tt.args)...)
		if got := p.ProcessState.ExitCode(); got != tt.code ||
			!strings.Contains(p.stderr.String(), tt.text) {
			t.Errorf("%s: exit code %d, stderr %q", tt.args, got, p.stderr.String())
		}
	}
}

// TestEnvIDProtection checks that a variable that protects is not ignored beside --env-id.
func TestEnvIDProtection(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, nil)
	p := d.call(t, func(p *process) {
		d.keep(t, p, "ccc1")
		p.Env = append(p.Env, "SANDBOXAGENT_NETWORK=none")
	}, "exec", "--env-id=c", "--", "true")
	const want = "the variable SANDBOXAGENT_NETWORK has no effect with --env-id"
	if got := p.stderr.String(); !strings.Contains(got, want) || p.ProcessState.ExitCode() != 125 {
		t.Errorf("exit code %d, stderr %q", p.ProcessState.ExitCode(), got)
	}
}

// TestEnvIDFile checks that a key of a file that protects gives a note beside --env-id, since no
// file is edited for one environment.
func TestEnvIDFile(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, nil)
	p := d.call(t, func(p *process) {
		d.keep(t, p, "ccc1")
		file := filepath.Join(p.Dir, configName)
		if err := os.WriteFile(file, []byte("image: i\nnetwork: none\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}, "exec", "--env-id=c", "--", "true")
	const note = configName + ":2: network has no effect with --env-id"
	got := p.stderr.String()
	if !strings.Contains(got, note) || !strings.Contains(got, "is gone") ||
		strings.Count(got, "no effect") != 1 {
		t.Errorf("exit code %d, stderr %q", p.ProcessState.ExitCode(), got)
	}
}

// TestDemoWithoutImage checks that the demonstration in a container names the image that it needs.
func TestDemoWithoutImage(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, nil)
	p := d.call(t, nil, "demo", "--env=docker")
	if got := p.stderr.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `"sandboxagent image build go"`) || p.ProcessState.ExitCode() != 6 {
		t.Errorf("exit code %d, stderr %q", p.ProcessState.ExitCode(), got)
	}
}

// TestWorkdirIsMissing checks that the message names the directory of the flag, not its parent, and
// that no daemon is needed for that.
func TestWorkdirIsMissing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "docker"} {
		p := newProcess(t, "exec", "--env="+kind, "--workdir=/no/such/dir", "--", "true")
		p.Env = append(p.Env, "DOCKER_HOST=unix:///no/such/socket")
		_ = p.Run() // ProcessState has the exit code
		const want = "sandboxagent: --workdir: the directory /no/such/dir does not exist\n"
		if got := p.stderr.String(); got != want || p.ProcessState.ExitCode() != 125 {
			t.Errorf("%s: exit code %d, stderr %q", kind, p.ProcessState.ExitCode(), got)
		}
	}
}

// TestDoctor checks the lines and the exit code on machines that lack something.
func TestDoctor(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t, nil)
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // it accepts nothing
	for name, tt := range map[string]struct {
		vars    []string
		code    int
		ok      []string
		missing map[string]string
	}{
		"with a key": {
			vars: []string{"OPENAI_API_KEY=s3cret", "DOCKER_HOST=" + d.host},
			ok:   []string{"version", "docker", "keys"},
		},
		"without a key": {
			code: 1, ok: []string{"version"}, missing: map[string]string{"keys": "OPENAI_API_KEY"},
		},
		"without programs": {
			vars: []string{"PATH=/no/such/dir", "GEMINI_API_KEY=s3cret"}, ok: []string{"keys"},
			missing: map[string]string{"ssh": "install", "git": "install"},
		},
		"a silent daemon": {
			vars: []string{
				"DOCKER_HOST=tcp://" + silent.Addr().String(), "no_proxy=127.0.0.1", patienceVar + "=3s",
			},
			code: 1, missing: map[string]string{"docker": "no answer within 3s"},
		},
		"no temporary directory": { // it needs none
			vars: []string{"TMPDIR=/no/such/dir", "OPENAI_API_KEY=s3cret"}, ok: []string{"keys"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "doctor")
			for _, name := range keyVariables() {
				p.Env = append(p.Env, name+"=")
			}
			p.Env = append(append(p.Env, "HOME="+t.TempDir(), patienceVar+"=1m"), tt.vars...)
			_ = p.Run() // ProcessState has the exit code
			lines := make(map[string]string)
			for line := range strings.Lines(p.stdout.String()) {
				lines[strings.Fields(line)[0]] = line
			}
			for _, part := range tt.ok {
				if !strings.Contains(lines[part], " ok ") {
					t.Errorf("%s: %q", part, lines[part])
				}
			}
			for part, remedy := range tt.missing {
				if !strings.Contains(lines[part], " missing ") || !strings.Contains(lines[part], remedy) {
					t.Errorf("%s: %q, want %q in it", part, lines[part], remedy)
				}
			}
			if got := p.ProcessState.ExitCode(); got != tt.code || len(lines) != 7 ||
				strings.Contains(p.stdout.String(), "s3cret") {
				t.Errorf("exit code %d\n%s%s", got, p.stdout.String(), p.stderr.String())
			}
		})
	}
}
