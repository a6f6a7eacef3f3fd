//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestResumeAfterKills kills a run before and after each entry of its journal and resumes it. Each
// step must have been made once, and none without the model's knowledge. No entry, and no result
// that the program had printed, may be lost.
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
	entries := bytes.Count(readJournal(t, whole), []byte("\n"))
	for n := 2; n <= entries; n++ { // before the first entry is done there is no session
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s %d of %d", when, n, entries), func(t *testing.T) {
				dir := t.TempDir()
				killed := program(t, dir, fmt.Sprintf("%s %d", when, n), "run", "write it",
					"--output=stream-json")
				_ = killed.Wait()
				before := wholeLines(readJournal(t, dir))
				checkPrinted(t, killed.stdout.String(), before)
				p := program(t, dir, "", "session", "resume", "--last")
				code := p.code(t)
				if code == codeUsage && strings.Contains(p.stderr.String(), "has no task yet") {
					p = program(t, dir, "", "session", "resume", "--last", "write it")
					code = p.code(t)
				}
				if after := readJournal(t, dir); !bytes.HasPrefix(after, before) {
					t.Errorf("the journal was\n%s\nand is\n%s", before, after)
				}
				finished := code == codeUsage && strings.Contains(p.stderr.String(), "is done")
				if code != codeDone && !finished {
					t.Errorf("exit code %d", code)
				}
				check(t, dir)
			})
		}
	}
}

// wholeLines returns data without the line that a kill has cut.
func wholeLines(data []byte) []byte {
	return data[:bytes.LastIndexByte(data, '\n')+1]
}

// readJournal returns the journal of the only session with its state in dir.
func readJournal(t *testing.T, dir string) []byte {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, ".state", "sessions", "*", session.JournalName))
	if len(names) != 1 {
		t.Fatalf("the journals are %q", names)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checkPrinted checks that a journal has the result of each call whose end a run has printed.
func checkPrinted(t *testing.T, events string, journal []byte) {
	t.Helper()
	stored := make(map[string]bool)
	for line := range bytes.Lines(journal) {
		var e session.Entry
		var r session.ToolResult
		err := json.Unmarshal(line, &e)
		if err == nil && e.Type == session.TypeToolResult {
			err = json.Unmarshal(e.Data, &r)
			stored[r.Result.CallID] = true
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for line := range strings.Lines(events) {
		var e struct {
			Type event.Kind `json:"type"`
			Data struct {
				CallID string `json:"call_id"`
			} `json:"data"`
		}
		if !strings.HasSuffix(line, "\n") { // the kill has cut it
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if e.Type == event.KindToolCallEnd && !stored[e.Data.CallID] {
			t.Errorf("the result of %s was printed, but is not stored", e.Data.CallID)
		}
	}
}

// TestAnswerAfterKills kills a program that answers a question before the answer is stored. The
// next one answers it.
func TestAnswerAfterKills(t *testing.T) {
	for _, kill := range []string{"after 1", "before 2", "after 2", "before 3"} {
		t.Run(kill, func(t *testing.T) {
			t.Parallel()
			asking := newProcess(t, "run", "--yes", "--sandbox=off", "--model=script:ask.yaml", "paint it")
			asking.writeFile(t, "ask.yaml", `turns:
  - calls: [{tool: ask_user, args: {question: "which?"}}]
`)
			asking.writeFile(t, "on.yaml", `turns:
  - expect: {user: {contains: red}}
    text: painted
`)
			asking.Env = append(asking.Env, beVar+"=sandboxagent-killed")
			if err := asking.Start(); err != nil {
				t.Fatal(err)
			}
			if code := asking.code(t); code != codeHuman {
				t.Fatalf("exit code %d", code)
			}
			for _, point := range []string{kill, ""} {
				p := newProcess(t, "session", "resume", "--last", "--yes", "--answer=red",
					"--model=script:on.yaml")
				p.Dir, p.Env = asking.Dir, append(asking.Env, killVar+"="+point)
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				if code := p.code(t); point == "" && code != codeDone || point != "" && code != -1 {
					t.Errorf("kill %q: exit code %d", point, code)
				}
			}
		})
	}
}
