package integration_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// hostile is a model that tries to do more than it may. Its calls are numbered from 1.
const hostile = `turns:
  - calls:
      - {tool: shell, args: {command: cat notes.txt}}
      - {tool: shell, args: {command: echo x >out.txt}}
      - {tool: shell, args: {command: git push nowhere main}}
      - {tool: shell, args: {command: timeout 5 sudo -n true}}
      - {tool: shell, args: {command: 'x=us; git p${x}h nowhere'}}
      - {tool: shell, args: {command: 'eval "$(cat notes.txt)"'}}
      - {tool: write_file, args: {file_path: ESCAPE, content: x}}
      - {tool: write_file, args: {file_path: kept.txt, content: x}}
      - {tool: read_file, args: {file_path: notes.txt}}
  - expect: {result: {contains: touch evaluated}}
    text: done
`

// TestPolicy runs the hostile model under each built-in policy in each environment, without a
// terminal.
func TestPolicy(t *testing.T) {
	t.Parallel()
	t.Run("local", func(t *testing.T) {
		provePolicies(t, func(t *testing.T, dir string, args ...string) ran {
			return runCommand(t, dir, nil, args...)
		})
	})
	t.Run("docker", func(t *testing.T) {
		d := sharedDocker(t)
		provePolicies(t, func(t *testing.T, dir string, args ...string) ran {
			return d.run(t, dir, nil, args...)
		})
	})
	t.Run("ssh", func(t *testing.T) {
		s := sshd(t, daemons.SSHDConfig{})
		provePolicies(t, func(t *testing.T, dir string, args ...string) ran {
			return runCommand(t, t.TempDir(), nil, slices.Concat(args, hostFlags(s),
				[]string{"--workdir=" + dir})...)
		})
	})
}

func provePolicies(t *testing.T, run func(t *testing.T, dir string, args ...string) ran) {
	for _, tt := range []struct {
		policy  string
		refused string // the calls, and the reason of each
		changed []string
	}{
		// The tools that write are not offered.
		{"read-only", "2 rule, 3 rule, 4 rule, 5 rule, 6 rule", nil},
		{
			"workspace-write", "3 nobody, 4 nobody, 5 nobody, 6 nobody, 7 nobody",
			[]string{"kept.txt", "out.txt"},
		},
		{"ci", "3 rule, 4 rule, 5 nobody, 6 nobody", []string{"kept.txt", "out.txt"}},
		{"full", "", []string{"evaluated", "kept.txt", "out.txt"}},
	} {
		t.Run(tt.policy, func(t *testing.T) {
			t.Parallel()
			dir, files := poem(t), t.TempDir()
			writeTree(t, dir, map[string]string{"notes.txt": "touch evaluated\n"})
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "notes")
			model := filepath.Join(files, "model.yaml")
			writeTree(t, files, map[string]string{
				"model.yaml": strings.ReplaceAll(hostile, "ESCAPE", filepath.Join(files, "escape")),
			})
			got := run(t, dir, "run", "--policy="+tt.policy, "--model=script:"+model,
				"--patch="+filepath.Join(files, "out.patch"), "--output=stream-json", "go")
			if got.code != 0 {
				t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
			_, res := records(t, got.stdout)
			var refused, changed []string
			for _, r := range res.Refused {
				refused = append(refused, fmt.Sprintf("%s %s", strings.TrimPrefix(r.CallID, "call_1_"), r.By))
			}
			for _, c := range res.Changes {
				if c.Path != filepath.Join(files, "escape") {
					changed = append(changed, c.Path)
				}
			}
			slices.Sort(changed)
			if diff := cmp.Diff(tt.refused, strings.Join(refused, ", ")); diff != "" {
				t.Errorf("refused (-want +got):\n%s%s", diff, got.stderr)
			}
			if diff := cmp.Diff(tt.changed, changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}
