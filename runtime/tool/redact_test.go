package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

type object = map[string]any

// canary is a secret without a form of its own.
const canary = "canary-bird-0815"

func redactor() *redact.Redactor {
	return redact.New(redact.Patterns, map[string]string{"CANARY": canary})
}

// TestRedactResults runs tools that output secrets in every way.
func TestRedactResults(t *testing.T) {
	const marker = "[redacted: CANARY]"
	for name, run := range map[string]func(call *Call) (Result, error){
		"a text":   func(*Call) (Result, error) { return Result{Text: canary}, nil },
		"an error": func(*Call) (Result, error) { return Result{}, fmt.Errorf("no %s", canary) },
		"a panic":  func(*Call) (Result, error) { panic(canary) },
		"output": func(call *Call) (Result, error) {
			_, err := fmt.Fprintf(call.Out, "x %s y", canary)
			return Result{}, err
		},
		"output byte by byte": func(call *Call) (Result, error) {
			for i := range canary {
				if _, err := call.Out.Write([]byte(canary[i : i+1])); err != nil {
					return Result{}, err
				}
			}
			return Result{}, nil
		},
		"output in colours": func(call *Call) (Result, error) {
			_, err := call.Out.Write([]byte("canary-\x1b[31mbird\x1b[0m-0815\n"))
			return Result{}, err
		},
		"long output": func(call *Call) (Result, error) {
			_, err := fmt.Fprint(call.Out, strings.Repeat("line\n", 120_000), canary, "\n",
				strings.Repeat("line\n", 120_000), canary)
			return Result{}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen strings.Builder
			spool := dirSpool{dir: t.TempDir()}
			o := registry(t, Tool{
				ToolSpec: llm.ToolSpec{Name: "leak", Description: "x", Schema: []byte(`{"type":"object"}`)},
				Terminal: true, Limit: Limit{Chars: 1000, Keep: KeepHeadTail},
				Run: func(_ context.Context, call *Call) (Result, error) { return run(call) },
			}).Run(t.Context(), Scope{
				Redactor: redactor(), Spool: spool,
				OnOutput: func(p []byte) { seen.Write(p) },
			}, llm.ToolCall{ID: "1", Name: "leak", Arguments: "{}"})
			f, err := o.Output.Open()
			if err != nil {
				t.Fatal(err)
			}
			whole, err := io.ReadAll(f)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if text := o.Result.Text(); strings.Contains(text, canary) || !strings.Contains(text, marker) {
				t.Errorf("the model sees %.200q", text)
			}
			if strings.Contains(string(whole), canary) || strings.Contains(seen.String(), canary) {
				t.Errorf("the output is %.200q, and in pieces %.200q", whole, seen.String())
			}
		})
	}
}

// TestEditsKeepSecrets changes files of which the model sees markers.
func TestEditsKeepSecrets(t *testing.T) {
	const key = "ghp" + "_0123456789abcdefghijklmnopqrstuvwxyz"
	const before = "user = me\ntoken = " + key + "\npassword = " + canary + "\nport = 1\n"
	m := newMemory(map[string]string{"conf": before, "other": "x\n"})
	s := Scope{Env: m, Redactor: redactor()}
	read := useIn(t, s, "read_file", object{"file_path": "conf"}).Result.Text()
	if strings.Contains(read, key) || strings.Contains(read, canary) {
		t.Fatal(read)
	}
	view := s.Redactor.Text(before)
	lines := strings.Split(view, "\n")
	for _, line := range lines {
		if !strings.Contains(read, line) {
			t.Errorf("read_file shows %q, without %q", read, line)
		}
	}
	after := strings.Replace(before, "port = 1", "port = 2", 1)
	for name, c := range map[string]struct {
		tool string
		args object
	}{
		"write_file": {"write_file", object{
			"file_path": "conf", "content": strings.Replace(view, "port = 1", "port = 2", 1),
		}},
		"edit_file": {"edit_file", object{
			"file_path": "conf", "old_string": lines[2] + "\nport = 1",
			"new_string": lines[2] + "\nport = 2",
		}},
		"apply_patch": {"apply_patch", object{"patch": "*** Begin Patch\n*** Update File: conf\n@@\n " +
			lines[1] + "\n " + lines[2] + "\n-port = 1\n+port = 2\n*** End Patch\n"}},
		"apply_patch that replaces a file": {"apply_patch", object{"patch": "*** Begin Patch\n" +
			"*** Add File: conf\n+user = me\n+" + lines[1] + "\n+" + lines[2] + "\n+port = 2\n" +
			"*** End Patch\n"}},
	} {
		m = newMemory(map[string]string{"conf": before})
		s.Env = m
		o := useIn(t, s, c.tool, c.args)
		if got := m.files()["conf"]; o.Err != nil || got != after {
			t.Errorf("%s: %v, %q", name, o.Err, got)
		}
	}
	m = newMemory(map[string]string{"conf": before, "other": "x\n"})
	s.Env = m
	for name, c := range map[string]struct {
		tool string
		args object
	}{
		"write_file": {"write_file", object{"file_path": "other", "content": lines[1]}},
		"a new file": {"write_file", object{"file_path": "new", "content": lines[2]}},
		"edit_file": {"edit_file", object{
			"file_path": "other", "old_string": "x", "new_string": lines[1],
		}},
		"apply_patch": {"apply_patch", object{"patch": "*** Begin Patch\n*** Update File: other\n@@\n" +
			"-x\n+" + lines[1] + "\n*** End Patch\n"}},
	} {
		check(t, useIn(t, s, c.tool, c.args), KindEditConflict, "stands for no secret of this file")
		if got := m.files()["other"]; got != "x\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
