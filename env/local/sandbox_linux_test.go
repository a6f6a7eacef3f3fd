package local_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// sandboxed returns a sandboxed environment, which is closed at the end of the test.
func sandboxed(
	t *testing.T, by sandbox.Mechanism, cfg local.Config, s env.Sandbox,
) *local.SupervisedEnvironment {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s.Require = true
	e, err := local.SandboxedBy(t.Context(), cfg, thisProgram(t), s, by)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// eachSandbox runs a test with each mechanism.
func eachSandbox(t *testing.T, test func(t *testing.T, by sandbox.Mechanism)) {
	for _, by := range sandbox.Mechanisms() {
		t.Run(string(by), func(t *testing.T) {
			if err := sandbox.Available(by); err != nil {
				if strings.Contains(os.Getenv("SANDBOXAGENT_REQUIRE"), "sandbox") {
					t.Fatalf("SANDBOXAGENT_REQUIRE: %v", err)
				}
				t.Skip(err)
			}
			test(t, by)
		})
	}
}

// TestSandboxedContract runs the conformance suite in the strongest sandbox, or in each.
func TestSandboxedContract(t *testing.T) {
	t.Parallel()
	proven := false
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		if proven && testing.Short() {
			t.Skip("left to make test-full: the contract in another sandbox")
		}
		proven = true
		var known map[string]string
		if by == sandbox.Landlock {
			known = map[string]string{
				"file/socket": "without a network only connected pairs of sockets can be created",
			}
		}
		envtest.Run(t, envtest.Options{
			New: func(t *testing.T) env.Environment {
				e, err := local.SandboxedBy(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t),
					env.Sandbox{Require: true}, by)
				if err != nil {
					t.Fatal(err)
				}
				return e
			},
			Known: known, Small: true, Alive: envtest.AliveOnHost,
		})
	})
}

// TestSandboxInfo checks the guarantees, and that Enforce refuses a sandbox that lacks one.
func TestSandboxInfo(t *testing.T) {
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		info := sandboxed(t, by, local.Config{}, env.Sandbox{}).Info()
		strong := []env.GuaranteeName{
			env.ConfinedWrites, env.HiddenSecrets, env.NoNetwork, env.NoNewRights,
		}
		weak := []env.GuaranteeName{env.KeptHooks}
		if by == sandbox.Bubblewrap {
			strong = append(strong, env.HiddenProcesses, env.Isolation)
			weak = append(weak, env.HiddenSockets)
		} else {
			strong = append(strong, env.HiddenSockets)
			weak = append(weak, env.HiddenProcesses, env.Isolation)
		}
		for _, p := range strong {
			if got := info.Strength(p); got != env.Enforced {
				t.Errorf("%s is %s", p, got)
			}
		}
		for _, p := range weak {
			if got := info.Strength(p); got == env.Enforced {
				t.Errorf("%s is %s", p, got)
			}
			_, err := local.SandboxedBy(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t),
				env.Sandbox{Enforce: []env.GuaranteeName{p}}, by)
			var unable *local.SandboxError
			if !errors.As(err, &unable) || len(unable.Missing) != 1 || unable.Missing[0] != p ||
				!strings.Contains(err.Error(), string(p)) {
				t.Errorf("Enforce %s: %v", p, err)
			}
		}
		open := sandboxed(t, by, local.Config{}, env.Sandbox{Network: true}).Info()
		if got := open.Strength(env.NoNetwork); got != env.Absent {
			t.Errorf("with a network, %s is %s", env.NoNetwork, got)
		}
		_, err := local.SandboxedBy(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t),
			env.Sandbox{Network: true, Enforce: []env.GuaranteeName{env.NoNetwork}}, by)
		var unable *local.SandboxError
		if !errors.As(err, &unable) {
			t.Errorf("Enforce no network, with one: %v", err)
		}
	})
}

// TestSandboxMatchesDocs compares the guarantees with the table in the documentation.
func TestSandboxMatchesDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Skip("not in a checkout")
	}
	columns := map[sandbox.Mechanism]int{sandbox.Bubblewrap: 2, sandbox.Landlock: 3}
	words := map[env.Strength]string{
		env.Enforced: "enforced", env.BestEffort: "best effort", env.Absent: "**not**",
	}
	declared := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) > 4 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			declared[strings.Split(cells[1], "`")[1]] = cells
		}
	}
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		for _, g := range sandboxed(t, by, local.Config{}, env.Sandbox{}).Info().Guarantees {
			switch g.Name {
			case env.KillTree, env.CleanClose, env.CleanCrash, env.AtomicWrite:
				continue // which need no sandbox
			}
			cells := declared[string(g.Name)]
			if len(cells) == 0 ||
				!strings.HasPrefix(strings.TrimSpace(cells[columns[by]]), words[g.Strength]) {
				t.Errorf("%s is %s, and docs/security.md has %q", g.Name, g.Strength, cells)
			}
			if g.By == "" {
				t.Errorf("%s has no By", g.Name)
			}
		}
	})
}

// TestNoSandbox has a machine without mechanisms.
func TestNoSandbox(t *testing.T) {
	e, err := local.SandboxedBy(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t),
		env.Sandbox{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for _, g := range e.Info().Guarantees {
		if g.Name == env.Isolation && (g.Strength != env.Absent || !strings.Contains(g.By,
			"no sandbox: ")) {
			t.Errorf("%+v", g)
		}
	}
	_, err = local.SandboxedBy(t.Context(), local.Config{Dir: t.TempDir()}, thisProgram(t),
		env.Sandbox{Require: true})
	var unable *local.SandboxError
	if !errors.As(err, &unable) || len(unable.Reasons) == 0 {
		t.Errorf("a required sandbox: %v", err)
	}
}

// TestSandboxUnsuitableDir works in directories in which a sandbox protects little.
func TestSandboxUnsuitableDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	const hint = "work in the directory of a project"
	for _, dir := range []string{"/", "/usr", home} {
		e, err := local.Sandboxed(t.Context(), local.Config{Dir: dir}, thisProgram(t), env.Sandbox{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		for _, g := range e.Info().Guarantees {
			if g.Name == env.Isolation &&
				(g.Strength != env.Absent || strings.Count(g.By, hint) != 1) {
				t.Errorf("%s: %+v", dir, g)
			}
		}
		_, err = local.Sandboxed(t.Context(), local.Config{Dir: dir}, thisProgram(t),
			env.Sandbox{Require: true})
		var unable *local.SandboxError
		if !errors.As(err, &unable) || strings.Count(err.Error(), hint) != 1 {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestSandboxInvalidPaths(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		dir     string
		sandbox env.Sandbox
		want    string
	}{
		"a directory that is missing":   {dir + "/no", env.Sandbox{}, "no such"},
		"a missing directory to write":  {dir, env.Sandbox{Write: []string{dir + "/no"}}, dir + "/no"},
		"a missing file to read":        {dir, env.Sandbox{Read: []string{dir + "/no"}}, dir + "/no"},
		"a relative name":               {dir, env.Sandbox{Write: []string{"no"}}, "not absolute"},
		"a sandbox that writes all":     {dir, env.Sandbox{Write: []string{"/"}}, "cannot allow changes"},
		"a missing directory, required": {dir + "/no", env.Sandbox{Require: true}, "no such"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := local.Sandboxed(t.Context(), local.Config{Dir: tt.dir}, thisProgram(t), tt.sandbox)
			var unable *local.SandboxError
			if err == nil || errors.As(err, &unable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
