//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestResumeAfterKills kills a run before and after each entry of its journal and resumes it. Each
// step must have been made once, and none without the model's knowledge.
func TestResumeAfterKills(t *testing.T) {
	const steps = 2
	server := llmtest.NewServer(t, llmtest.Careful(steps))
	program := func(t *testing.T, dir, kill string, args ...string) *process {
		t.Helper()
		p := newProcess(t, append(args, "--yes", "--sandbox=off", "--model=openai-compatible/m",
			"--base-url="+server.URL())...)
		p.dir, p.Dir = dir, dir
		p.Env = append(p.Env, beVar+"=sandboxagent-killed", killVar+"="+kill,
			"SANDBOXAGENT_STATE_DIR="+filepath.Join(dir, ".state"),
			"SANDBOXAGENT_API_KEY="+server.Key())
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	check := func(t *testing.T, dir string) {
		t.Helper()
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil || string(log) != "0\n1\n" {
			t.Errorf("the log is %q, %v", log, err)
		}
	}
	whole := t.TempDir()
	if code := program(t, whole, "", "run", "write it").code(t); code != codeDone {
		t.Fatalf("exit code %d", code)
	}
	check(t, whole)
	journals, _ := filepath.Glob(filepath.Join(whole, ".state", "sessions", "*", session.JournalName))
	data, err := os.ReadFile(journals[0])
	if err != nil {
		t.Fatal(err)
	}
	entries := strings.Count(string(data), "\n")
	for n := 2; n <= entries; n++ { // before the first entry is done there is no session
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s %d of %d", when, n, entries), func(t *testing.T) {
				dir := t.TempDir()
				_ = program(t, dir, fmt.Sprintf("%s %d", when, n), "run", "write it").Wait()
				p := program(t, dir, "", "session", "resume", "--last")
				code := p.code(t)
				finished := code == codeUsage && strings.Contains(p.stderr.String(), "is done")
				if code != codeDone && !finished {
					t.Errorf("exit code %d", code)
				}
				check(t, dir)
			})
		}
	}
}
