package confine

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
)

// aPlan is one with something of everything.
func aPlan() Plan {
	return Plan{
		By:     SandboxExec,
		Write:  []string{"/Users/me/project", "/Users/me/.config/gh/lent", "/Users/me/notes.txt"},
		Temp:   "/private/var/folders/xy/T/sandboxagent-tmp-1",
		Keep:   []string{"/Users/me/project/.git/config", "/Users/me/project/sandboxagent.yaml", "/Users/me/elsewhere/config"},
		Absent: []string{"/Users/me/project/.git/hooks"},
		Unmade: []string{"/Users/me/project/.git/commondir"},
		Hidden: []string{"/Users/me/.config/gh", "/Users/me/.ssh", "/Users/me/project/deploy/keys"},
		Read:   []string{"/Users/me/.ssh/known/hosts", "/Users/me/project/deploy/keys/public"},
	}
}

func TestSeatbeltRules(t *testing.T) {
	p := aPlan()
	profile, parameters, err := p.profile()
	if err != nil {
		t.Fatal(err)
	}
	rules := readProfile(t, profile, parameters)
	for _, test := range []struct {
		operation, name string
		want            bool
	}{
		{"file-read-data", "/usr/bin/true", true},
		{"file-write-data", "/Users/me/.zshrc", false},
		{"file-write-create", "/private/tmp/x", false},
		{"file-write-create", "/Users/me/project2", false},
		{"file-write-create", "/Users/me/project/x", true},
		{"file-write-unlink", "/Users/me/project/x", true},
		{"file-write-data", "/Users/me/notes.txt", true},
		{"file-write-create", p.Temp + "/x", true},
		{"file-write-data", "/dev/null", true},
		{"file-write-data", "/dev/ttys003", true},
		{"file-write-data", "/dev/ttys003x", false},
		{"file-write-data", "/dev/disk0", false},
		{"file-read-data", "/dev/rdisk0s1", false},
		{"file-read-data", "/dev/bpf0", false},
		// What is kept.
		{"file-write-data", "/Users/me/project/.git/config", false},
		{"file-write-unlink", "/Users/me/project/.git/config", false},
		{"file-write-create", "/Users/me/project/.git/hooks/pre-commit", false},
		{"file-write-create", "/Users/me/project/.git/commondir", false},
		{"file-write-create", "/Users/me/project/.git/index.lock", true},
		{"file-read-data", "/Users/me/project/.git/config", true},
		{"file-write-unlink", "/Users/me/project/.git", false},
		{"file-write-unlink", "/Users/me/project", false},
		{"file-write-unlink", p.Temp, false},
		{"file-write-unlink", "/Users/me/project/deploy", false},
		{"file-write-times", "/Users/me/project/.git", true},
		// What is hidden.
		{"file-read-data", "/Users/me/.ssh/id_ed25519", false},
		{"file-read-metadata", "/Users/me/.ssh/id_ed25519", false},
		{"file-read-data", "/Users/me/.ssh", false},
		{"file-clone", "/Users/me/.ssh/id_ed25519", false},
		{"file-read-metadata", "/Users/me/.ssh", true},
		{"file-read-metadata", "/Users/me/.ssh/known", true},
		{"file-read-data", "/Users/me/.ssh/known", false},
		{"file-read-data", "/Users/me/.ssh/known/hosts", true},
		{"file-write-data", "/Users/me/.ssh/known/hosts", false},
		{"file-read-data", "/Users/me/.config/gh/hosts.yml", false},
		{"file-read-data", "/Users/me/.config/gh/lent/x", true},
		{"file-write-data", "/Users/me/.config/gh/lent/x", true},
		{"file-read-data", "/Users/me/project/deploy/keys/secret", false},
		{"file-write-data", "/Users/me/project/deploy/keys/secret", false},
		{"file-write-unlink", "/Users/me/project/deploy/keys", false},
		{"file-read-data", "/Users/me/project/deploy/keys/public", true},
		{"file-write-data", "/Users/me/project/deploy/keys/public", false},
		{"file-write-data", "/Users/me/project/deploy/script", true},
		// Names and rights.
		{"file-link", "/Users/me/project/x", false},
		{"file-write-setugid", "/Users/me/project/x", false},
		{"file-mount", "/Users/me/project/x", false},
		{"lsopen", "", false},
		{"appleevent-send", "", false},
		{"user-preference-write", "", false},
		{"signal", "", false},
		{"process-exec", "/bin/sh", true},
		{"network-outbound", "/private/var/run/docker.sock", false},
		{"network-bind", "", false},
	} {
		if got := allowed(rules, test.operation, test.name); got != test.want {
			t.Errorf("%s of %q is allowed: %t, want %t", test.operation, test.name, got, test.want)
		}
	}
	if t.Failed() {
		t.Log(profile)
	}
}

// A rule about names that has none would be one about everything.
func TestSeatbeltNothingForAll(t *testing.T) {
	for _, p := range []Plan{{}, {Write: []string{"/w"}}, {Hidden: []string{"/h"}, Network: true}, aPlan()} {
		profile, parameters, err := p.profile()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range readProfile(t, profile, parameters) {
			if r.allow && len(r.conditions) == 0 && !slices.Equal(r.operations, []string{"default"}) {
				t.Errorf("%v is allowed for everything", r.operations)
			}
			if !r.allow && len(r.conditions) == 0 && slices.ContainsFunc(r.operations, func(o string) bool { return strings.HasPrefix(o, "file-read") }) {
				t.Errorf("%v is forbidden for everything", r.operations)
			}
		}
	}
}

func TestSeatbeltNetwork(t *testing.T) {
	p := aPlan()
	profile, _, err := p.profile()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(profile, "(deny network*)\n") || strings.Contains(profile, "allow network") {
		t.Errorf("there is a network in\n%s", profile)
	}
	p.Network = true
	if profile, _, err = p.profile(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(profile, "(deny network*)") {
		t.Errorf("there is no network in\n%s", profile)
	}
	denied := strings.Index(profile, "(deny network-outbound (remote unix-socket))")
	names := strings.Index(profile, `(allow network-outbound (remote unix-socket (literal "/private/var/run/mDNSResponder")))`)
	if denied < 0 || names < denied {
		t.Errorf("sockets of others are reached, or no names are resolved, in\n%s", profile)
	}
}

// nasty are names that a profile might take for parts of itself.
var nasty = []string{
	`/w/a"b`, `/w/a\`, `/w/\"`, `/w/")) (allow default) ((x "`, "/w/(", "/w/)", "/w/;x", `/w/#"x"`, "/w/a=b", "/w/$HOME", "/w/%s", "/w/ü日本", "/w/ x ",
	"/w/-p", `/w/(param "P0")`,
}

func TestProfileNames(t *testing.T) {
	plain := Plan{Write: []string{"/w"}, Temp: "/t", Keep: []string{"/w/x"}, Hidden: []string{"/h"}}
	want, _, err := plain.profile()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range nasty {
		p := plain
		p.Keep = []string{name}
		got, parameters, err := p.profile()
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if got != want {
			t.Errorf("%q has come into the profile:\n%s", name, got)
		}
		rules := readProfile(t, got, parameters)
		if allowed(rules, "file-write-data", name) || !allowed(rules, "file-write-data", "/w/other") {
			t.Errorf("%q is not kept", name)
		}
	}
	for _, name := range []string{"/w/a\nb", "/w/a\x00b", "/w/\x7f", "/w/\xff", "/w/\t"} {
		p := plain
		p.Keep = []string{name}
		if got, _, err := p.profile(); err == nil {
			t.Errorf("%q is in a profile:\n%s", name, got)
		}
	}
}

func FuzzProfile(f *testing.F) {
	for _, name := range nasty {
		f.Add("/w", name, "/h", "/w/x", "/h/r", false)
		f.Add(name, "/t", name+"/h", name+"/x", name+"/h/r", true)
	}
	f.Fuzz(func(t *testing.T, write, temp, hidden, kept, read string, network bool) {
		names := []string{write, temp, hidden, kept, read}
		if len(strings.Join(names, "")) > 1000 {
			return
		}
		for i, name := range names {
			names[i] = filepath.Join("/", name)
		}
		if names[0] == "/" {
			return // which New refuses
		}
		p := Plan{Write: names[:1], Temp: names[1], Hidden: names[2:3], Keep: names[3:4], Read: names[4:], Network: network}
		profile, parameters, err := p.profile()
		good := !slices.ContainsFunc(names, func(name string) bool {
			return !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f })
		})
		if err != nil {
			if good {
				t.Fatalf("%q: %v", names, err)
			}
			return
		}
		rules := readProfile(t, profile, parameters)
		has := func(allow bool, operation, how, name string) bool {
			return slices.ContainsFunc(rules, func(r aRule) bool {
				return r.allow == allow && slices.Contains(r.operations, operation) && slices.Contains(r.conditions, condition{how, name})
			})
		}
		if !has(true, "file-write*", "subpath", p.Write[0]) || !has(true, "file-write*", "subpath", p.Temp) ||
			!has(false, "file-read*", "subpath", p.Hidden[0]) || !has(false, "file-write*", "subpath", p.Keep[0]) {
			t.Errorf("%q are not all in\n%s%q", names, profile, parameters)
		}
		for _, parameter := range parameters {
			_, value, _ := strings.Cut(parameter, "=")
			if !slices.ContainsFunc(names, func(name string) bool { return Inside(name, value) }) {
				t.Errorf("%q is none of %q, and leads to none", value, names)
			}
		}
		if strings.Trim(profile, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ()\"\n-*./^$[]+?|#") != "" || !utf8.ValidString(profile) {
			t.Errorf("there are names in\n%s", profile)
		}
	})
}

func TestSeatbeltHold(t *testing.T) {
	git := t.TempDir()
	hooks, settings := filepath.Join(git, "hooks"), filepath.Join(git, "config.worktree")
	p := Plan{Absent: []string{hooks, settings}}
	for range 2 { // a command may be made again
		if err := p.hold(); err != nil {
			t.Fatal(err)
		}
	}
	if !isFolder(hooks) || !exists(settings) {
		t.Error("there is nothing in the place of what must not come into being")
	}
	if err := p.Tidy(); err != nil {
		t.Fatal(err)
	}
	if exists(hooks) || exists(settings) {
		t.Error("it stays")
	}
	p.Absent = []string{filepath.Join(git, "none", "hooks")}
	if err := p.hold(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Nothing confines the tests, which no try may take for a sandbox.
func TestSeatbeltTried(t *testing.T) {
	dir := t.TempDir()
	kept, temp, outside := filepath.Join(dir, "kept"), filepath.Join(dir, "temp"), filepath.Join(dir, "outside")
	for _, name := range []string{temp, outside} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kept, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Plan{Temp: temp, Network: true}
	for _, test := range []struct {
		outside []string
		want    string
	}{
		{[]string{outside}, outside + " can be changed"},
		{[]string{temp}, "no folder by which to tell"},
		{[]string{filepath.Join(dir, "none")}, "no folder by which to tell"},
		{nil, "no folder by which to tell"},
	} {
		if err := p.tried(test.outside); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %s", test.outside, err, test.want)
		}
	}
	if err := tryChange(kept); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "as it was" {
		t.Errorf("the try has left %q, %v", data, err)
	}
	if err := tryChange(outside); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("the try has left %v, %v", names, err)
	}
	if !readable(kept) || !readable(outside) || readable(filepath.Join(dir, "none")) {
		t.Error("what can be read is not told from what is not there")
	}
	if err := tryNetwork(); err == nil {
		t.Error("there is no network")
	}
}

func TestSeatbeltGuarantees(t *testing.T) {
	for _, network := range []bool{false, true} {
		p := Plan{By: SandboxExec, Network: network}
		strengths := make(map[env.Promise]env.Strength)
		for _, g := range p.bySandboxExec() {
			if g.Strength == env.Enforced || g.By == "" {
				t.Errorf("%s is %s by %q", g.Promise, g.Strength, g.By)
			}
			strengths[g.Promise] = g.Strength
		}
		want := map[env.Promise]env.Strength{
			env.Isolation: env.BestEffort, env.ConfinedWrites: env.BestEffort, env.HiddenSecrets: env.BestEffort, env.NoNetwork: env.BestEffort,
			env.HiddenSockets: env.BestEffort, env.HiddenProcesses: env.Absent, env.NoNewRights: env.BestEffort, env.KeptHooks: env.BestEffort,
		}
		if network {
			want[env.NoNetwork] = env.Absent
		}
		if !maps.Equal(strengths, want) {
			t.Errorf("network %t: got %v, want %v", network, strengths, want)
		}
	}
}
