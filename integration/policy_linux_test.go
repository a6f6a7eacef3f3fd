package integration_test

import (
	"fmt"
	"os"
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

// eachEnvironment calls prove with a function that runs this program with an environment of each
// backend for a directory.
func eachEnvironment(
	t *testing.T, prove func(t *testing.T, run func(t *testing.T, dir string, args ...string) ran),
) {
	t.Run("local", func(t *testing.T) {
		prove(t, func(t *testing.T, dir string, args ...string) ran {
			return runCommand(t, dir, nil, args...)
		})
	})
	t.Run("docker", func(t *testing.T) {
		d := sharedDocker(t)
		prove(t, func(t *testing.T, dir string, args ...string) ran {
			return d.run(t, dir, nil, args...)
		})
	})
	t.Run("ssh", func(t *testing.T) {
		s := sshd(t, daemons.SSHDConfig{})
		prove(t, func(t *testing.T, dir string, args ...string) ran {
			return runCommand(t, t.TempDir(), nil, slices.Concat(args, hostFlags(s),
				[]string{"--workdir=" + dir})...)
		})
	})
}

// TestPolicy runs the hostile model under each built-in policy in each environment, without a
// terminal.
func TestPolicy(t *testing.T) {
	t.Parallel()
	eachEnvironment(t, provePolicies)
}

// confinedRun is a model whose commands try to change files: those of the run, or those of a
// sub-agent.
const confinedRun = `turns:
  - calls: [{tool: shell, args: {command: "cat notes.txt; CHANGES; cat notes.txt"}}]
  - expect: {result: {contains: original}}
    calls:
      - tool: shell
        args: {command: "cat notes.txt sub/mine; ls; echo temporary >$TMPDIR/f; cat $TMPDIR/f"}
  - expect: {result: {contains: temporary}}
    text: done
`

const changes = `echo changed >notes.txt; echo changed >>notes.txt; rm -f notes.txt; ` +
	`mv notes.txt elsewhere.txt; ln -s /etc notes.txt; touch new.txt; mkdir new; ` +
	`(setsid sh -c \"echo changed >notes.txt\"); truncate -s 0 notes.txt`

// TestReadOnlyRun runs commands that try to change files in a read-only run in each environment.
func TestReadOnlyRun(t *testing.T) {
	t.Parallel()
	eachEnvironment(t, proveReadOnly)
	t.Run("k8s", func(t *testing.T) { proveReadOnly(t, inPods(t)) })
}

// inPods returns a function that runs the program, whose tools act on a pod.
func inPods(t *testing.T) func(t *testing.T, dir string, args ...string) ran {
	k := sharedKube(t)
	return func(t *testing.T, dir string, args ...string) ran {
		last := len(args) - 1
		args = append(args[:last:last], "--image="+daemons.Debian, args[last])
		return k.run(t, dir, nil, args...)
	}
}

func proveReadOnly(t *testing.T, run func(*testing.T, string, ...string) ran) {
	dir, model := projectOfAgents(t, confinedRun)
	before := git(t, dir, "status", "--porcelain")
	got := run(t, dir, "run", "--read-only", "--yes", "--model=script:"+model,
		"--output=stream-json", "go")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	events, res := records(t, got.stdout)
	if strings.Contains(fmt.Sprint(events), "\nelsewhere.txt\n") || len(res.Changes) > 0 {
		t.Errorf("the commands have changed something: %v\n%s", res.Changes, got.stdout)
	}
	if after := git(t, dir, "status", "--porcelain"); after != before {
		t.Errorf("git status prints:\n%s\nand before:\n%s", after, before)
	}
}

// planningRun is a model in plan mode, whose tools try to change files. Rules cannot know what its
// program does.
const planningRun = `turns:
  - calls:
      - {tool: shell, args: {command: "./change; cat notes.txt"}}
      - {tool: write_file, args: {file_path: new.txt, content: x}}
  - expect:
      results: [{contains: original}, {contains: it was not run}]
    calls: [{tool: write_file, args: {file_path: PLAN.md, content: the plan}}]
  - expect: {result: {is_error: false}}
    calls: [{tool: shell, args: {command: "cat PLAN.md sub/mine; ls"}}]
  - expect: {result: {contains: the plan}}
    text: done
`

// TestPlanningRun has a run in plan mode in each environment, which changes the plan's file only.
func TestPlanningRun(t *testing.T) {
	t.Parallel()
	eachEnvironment(t, provePlanning)
	t.Run("k8s", func(t *testing.T) { provePlanning(t, inPods(t)) })
}

func provePlanning(t *testing.T, run func(*testing.T, string, ...string) ran) {
	dir, model := projectOfAgents(t, planningRun)
	program := filepath.Join(dir, "change")
	text := "#!/bin/sh\n" + strings.ReplaceAll(changes, `\"`, `"`)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "a program")
	got := run(t, dir, "run", "--mode=plan", "--yes", "--model=script:"+model,
		"--patch="+filepath.Join(t.TempDir(), "out.patch"), "--output=stream-json", "go")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	_, res := records(t, got.stdout)
	if len(res.Changes) != 1 || res.Changes[0].Path != "PLAN.md" {
		t.Errorf("changes: %+v, want one of PLAN.md\n%s", res.Changes, got.stdout)
	}
}

// confinedAgent is a model that starts a sub-agent in a directory, whose commands try to leave it.
const confinedAgent = `turns:
  - calls:
      - {tool: spawn_agent, args: {task: go, working_dir: sub}}
      - {tool: wait, args: {agent_id: agent_1}}
  - calls: [{tool: shell, args: {command: "echo own >mine; cd ..; cat notes.txt; ls; CHANGES"}}]
  - expect: {result: {contains: Permission denied}}
    calls: [{tool: shell, args: {command: "cat mine; head -c 4 ../notes.txt"}}]
  - expect: {result: {contains: own}}
    text: the part is done
  - calls: [{tool: shell, args: {command: "cat notes.txt sub/mine; ls"}}]
  - expect: {result: {contains: original}}
    text: done
`

// TestConfinedAgent runs commands of a sub-agent with a directory of its own in each environment.
func TestConfinedAgent(t *testing.T) {
	t.Parallel()
	eachEnvironment(t, proveConfinedAgent)
	t.Run("k8s", func(t *testing.T) { proveConfinedAgent(t, inPods(t)) })
}

func proveConfinedAgent(t *testing.T, run func(*testing.T, string, ...string) ran) {
	dir, model := projectOfAgents(t, confinedAgent)
	patch := filepath.Join(t.TempDir(), "out.patch")
	got := run(t, dir, "run", "--yes", "--model=script:"+model, "--patch="+patch,
		"--output=stream-json", "go")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	_, res := records(t, got.stdout)
	if len(res.Changes) != 1 || res.Changes[0].Path != "sub/mine" {
		t.Errorf("changes: %+v, want one of sub/mine\n%s", res.Changes, got.stdout)
	}
	for line := range strings.Lines(got.stdout) {
		if strings.Contains(line, `"agent_id":"agent_1"`) && strings.Contains(line, "original") {
			t.Errorf("the sub-agent has read a file outside of its directory: %s", line)
		}
	}
}

// projectOfAgents makes a project with the files notes.txt and sub/mine, and a model.
func projectOfAgents(t *testing.T, turns string) (dir, model string) {
	t.Helper()
	dir = poem(t)
	writeTree(t, dir, map[string]string{"notes.txt": "original\n", "sub/mine": "mine\n"})
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "notes")
	files := t.TempDir()
	writeTree(t, files, map[string]string{
		"model.yaml": strings.ReplaceAll(turns, "CHANGES", changes),
	})
	return dir, filepath.Join(files, "model.yaml")
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
