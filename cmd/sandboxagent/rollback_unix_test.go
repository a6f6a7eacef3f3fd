//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestRollbackKilled kills the program in a rollback, before and after its entry of the journal,
// and with files of which some are not put back yet. The next command finishes it.
func TestRollbackKilled(t *testing.T) {
	const script = `turns:
  - calls: [{tool: shell, args: {command: "echo 1 > one; echo 1 > two; echo 1 > three"}}]
  - calls: [{tool: shell, args: {command: "echo 2 > one; echo 2 > two; rm three; echo 2 > four"}}]
  - text: done
`
	write := func(t *testing.T, dir string, files map[string]string) {
		t.Helper()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		kill string
		// half are files that are not put back, and parts of those that are under way.
		half map[string]string
		next []string
		says string
	}{
		"with a part of one": {
			"before 1",
			map[string]string{"four": "2\n", ".sandboxagent-tmp-X": "1"},
			[]string{"session", "undo", "--last"},
			"is finished",
		},
		"before the entry": {"before 1", nil, []string{"session", "undo", "--last"}, "is finished"},
		"after the entry":  {"after 1", nil, []string{"session", "undo", "--last"}, "is finished"},
		"with half of them": {
			"before 1",
			map[string]string{"one": "2\n", "four": "2\n"},
			[]string{"session", "undo", "--last"},
			"is finished",
		},
		"and resumed": {
			"before 1",
			map[string]string{"two": "2\n"},
			[]string{"session", "resume", "--last", "go on", "--model=script:.state/none.yaml"},
			"is finished",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, ".state")
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, state, map[string]string{"two.yaml": script, "none.yaml": "turns: [{text: ok}]"})
			run := func(kill string, args ...string) *process {
				t.Helper()
				p := newProcess(t, append(args, "--sandbox=off")...)
				p.dir, p.Dir = dir, dir
				p.Env = append(p.Env, beVar+"=sandboxagent-killed", killVar+"="+kill,
					"SANDBOXAGENT_STATE_DIR="+state, "SANDBOXAGENT_YES=true")
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				return p
			}
			if code := run("", "run", "--model=script:.state/two.yaml", "x").code(t); code != codeDone {
				t.Fatalf("exit code %d", code)
			}
			_ = run(tt.kill, "session", "undo", "--last").Wait()
			pending, err := filepath.Glob(filepath.Join(state, "sessions", "*", pendingName))
			if err != nil || len(pending) != 1 {
				t.Fatalf("the rollback was not killed: %v, %v", pending, err)
			}
			write(t, dir, tt.half)
			const part = ".sandboxagent-tmp-X"
			if tt.half[part] != "" {
				if err := os.Remove(filepath.Join(dir, "three")); err != nil {
					t.Fatal(err)
				}
			}
			next := run("", tt.next...)
			if code := next.code(t); code != codeDone ||
				!strings.Contains(next.stderr.String(), tt.says) {
				t.Errorf("exit code %d\n%s", code, next.stderr.String())
			}
			for _, file := range []string{"one", "two", "three"} {
				if data, err := os.ReadFile(filepath.Join(dir, file)); string(data) != "1\n" {
					t.Errorf("%s is %q, %v", file, data, err)
				}
			}
			for _, file := range []string{"four", part} {
				if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
					t.Errorf("%s is left", file)
				}
			}
			r, err := session.Load(filepath.Dir(pending[0]))
			if err != nil || len(r.Conversation) < 3 || r.Conversation[2].Kind != session.TurnToolResults ||
				len(r.Conversation) > 3 && r.Conversation[3].Kind != session.TurnUser {
				t.Errorf("the conversation is %+v, %v", r.Conversation, err)
			}
			if _, err := os.Stat(pending[0]); err == nil {
				t.Error("the rollback is not finished")
			}
		})
	}
}

// TestRollbackOfCopyKilled kills the program in a rollback of a session that worked on a copy:
// before and after the entry of the journal, and after the changes to the copy were replaced. The
// next command finishes it.
func TestRollbackOfCopyKilled(t *testing.T) {
	for name, tt := range map[string]struct {
		kill string
		// replaced means that the changes to the copy are those of the rollback already.
		replaced bool
	}{
		"before the entry":  {"before 1", false},
		"after the entry":   {"after 1", false},
		"after the changes": {"after 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run := func(kill string, args ...string) *process {
				t.Helper()
				p := newProcess(t, args...)
				p.Dir = dir
				p.Env = append(p.Env, beVar+"=sandboxagent-killed", killVar+"="+kill,
					"SANDBOXAGENT_STATE_DIR="+filepath.Join(dir, ".state"), "SANDBOXAGENT_YES=true")
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				return p
			}
			const script = `turns:
  - calls: [{tool: shell, args: {command: "echo 1 > one"}}]
  - calls: [{tool: shell, args: {command: "echo 2 > one; echo 2 > two"}}]
  - text: done
`
			if err := os.WriteFile(filepath.Join(dir, "s.yaml"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			if code := run("", "run", "--model=script:s.yaml", "x").code(t); code != codeDone {
				t.Fatalf("exit code %d", code)
			}
			at := makeCopySession(t, filepath.Join(dir, ".state", "sessions"))
			_ = run(tt.kill, "session", "undo", "copy").Wait()
			if !fileExists(filepath.Join(at, pendingName)) {
				t.Fatal("the rollback was not killed")
			}
			if tt.replaced {
				err := os.Rename(filepath.Join(at, changesName), filepath.Join(at, checkpointName))
				if err != nil {
					t.Fatal(err)
				}
			}
			next := run("", "session", "undo", "copy")
			if code := next.code(t); code != codeDone ||
				!strings.Contains(next.stderr.String(), "is finished") {
				t.Errorf("exit code %d", code)
			}
			checkCopySession(t, at)
		})
	}
}

// makeCopySession makes the session "copy" of the only one in a directory, as if that had worked on
// a copy of its working directory.
func makeCopySession(t *testing.T, sessions string) (dir string) {
	t.Helper()
	list, err := session.List(sessions, func(_ string, err error) { t.Fatal(err) })
	if err != nil || len(list) != 1 {
		t.Fatalf("%d sessions, %v", len(list), err)
	}
	r, dir := list[0], filepath.Join(sessions, "copy")
	err = r.Copy(dir, session.CopyOptions{
		Change: func(s *session.Started) { s.Backend = "docker" },
		Finish: func(at string) error {
			return replaceFile(filepath.Join(at, checkpointName), 0o600, func(w io.Writer) error {
				return workspace.SaveChanges(w, "", workspaceChanges(r.Changes()), r.OpenObject)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkCopySession checks that the session in dir has the first round of calls, and the changes to
// the copy by it.
func checkCopySession(t *testing.T, dir string) {
	t.Helper()
	r, err := session.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Conversation); n != 3 {
		t.Errorf("the conversation has %d turns", n)
	}
	f, err := os.Open(filepath.Join(dir, checkpointName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	c, err := workspace.ReadCheckpoint(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Changes(), fileChanges(c.Changes)); diff != "" || len(c.Changes) != 1 {
		t.Errorf("%d changes (-session +copy):\n%s", len(c.Changes), diff)
	}
	for _, name := range []string{pendingName, changesName} {
		if fileExists(filepath.Join(dir, name)) {
			t.Errorf("%s is left", name)
		}
	}
}

// TestUndoAfterKilledEnd kills the program after the end of a run, before it has stored the changes
// of the last round. They are not known, and no other round is taken back in its place.
func TestUndoAfterKilledEnd(t *testing.T) {
	p := newProcess(t, "run", "--sandbox=off", "--yes", "--model=script:s.yaml", "--max-tool-rounds=2",
		"x")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: shell, args: {command: "echo 1 >one"}}]
  - calls: [{tool: shell, args: {command: "echo 2 >two"}}]
  - text: done
`)
	p.Env = append(p.Env, beVar+"=sandboxagent-killed", killVar+"=ended")
	if err := p.Run(); p.ProcessState == nil || p.ProcessState.Exited() {
		t.Fatalf("the run was not killed: %v", err)
	}
	p.refusesUndo(t, "one", "two")
}

// TestUndoOfKilledAgents kills the program while it waits for a sub-agent that changes files. These
// changes are not known, and no other round is taken back in their place.
func TestUndoOfKilledAgents(t *testing.T) {
	p := newProcess(t, "run", "--sandbox=off", "--yes", "--model=script:s.yaml", "x")
	p.writeFile(t, "s.yaml", `turns:
  - calls:
      - {tool: spawn_agent, args: {agent_type: general, task: work}}
      - tool: shell
        args: {command: "until test -e two; do sleep .1; done", timeout_ms: 600000}
  - calls:
      - tool: shell
        args:
          command: "echo 2 >two; until test -e go; do sleep .1; done; echo 3 >three; sleep 1000"
          timeout_ms: 600000
  - calls: [{tool: wait, args: {agent_id: agent_1}}]
`)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the second round", func() bool {
		names, err := filepath.Glob(filepath.Join(p.dir, ".state", "sessions", "*", session.JournalName))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, name := range names {
			data, _ := os.ReadFile(name)
			all.Write(data)
		}
		return strings.Contains(all.String(), `"type":"`+session.TypeSnapshot+`"`) &&
			strings.Contains(all.String(), `"name":"wait"`)
	})
	p.writeFile(t, "go", "")
	p.awaitFile(t, "three")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed
	p.refusesUndo(t, "two", "three")
}

// refusesUndo checks that undo takes back nothing after the program of a session was killed before
// it had stored its changes, and that the files are there.
func (p *process) refusesUndo(t *testing.T, files ...string) {
	t.Helper()
	undo := newProcess(t, "session", "undo", "--last")
	undo.Dir, undo.Env = p.Dir, append(p.Env, beVar+"=sandboxagent")
	if err := undo.Start(); err != nil {
		t.Fatal(err)
	}
	if code := undo.code(t); code != codeEnvironment ||
		!strings.Contains(undo.stderr.String(), "was killed before they were stored") {
		t.Errorf("exit code %d", code)
	}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(p.dir, name)); err != nil {
			t.Error(err)
		}
	}
}
