//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// TestUncheckedTree has a command that kills the helper, so that nothing can be checked.
func TestUncheckedTree(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`text: done`,
		`calls: [{tool: exit, args: {code: 1, reason: failed}}]`,
	} {
		p := newProcess(t, "run", "--yes", "--sandbox=off", "--max-replans=0", "--output=json",
			"--model=script:model.yaml", "a task")
		p.writeFile(t, "model.yaml", `turns:
  - calls: [{tool: shell, args: {command: 'mkdir sub; kill -9 $PPID'}}]
  - `+answer+"\n")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		code := p.code(t)
		var r event.Result
		if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if code != 6 || !strings.Contains(r.Unchecked, "was not checked: ") ||
			!strings.Contains(r.Error, r.Unchecked) ||
			!strings.Contains(p.stderr.String(), "was not checked completely") {
			t.Errorf("%s: code %d, %+v", answer, code, r)
		}
	}
}
