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
			if strings.Contains(string(whole), "bird") || strings.Contains(seen.String(), "bird") {
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

// TestPartsOfSecrets has tools show, or lose, parts of secrets.
func TestPartsOfSecrets(t *testing.T) {
	const key = "ghp" + "_0123456789abcdefghijklmnopqrstuvwxyz"
	pem := "-----BEGIN RSA PRIVATE" + " KEY-----\n" + strings.Repeat("MIIEabcdMIIEabcdMIIE\n", 20) +
		"-----END RSA PRIVATE" + " KEY-----\nafter\n"
	m := newMemory(map[string]string{
		"pem": "before\n" + pem, "mention": "a\n" + pem[:31] + ") {\nb\nc\n",
		"long": strings.Repeat("x", 480) + " " + canary + " and more\n" + strings.Repeat("y", 600) + "\n",
		"conf": "token = " + key + "\n",
	})
	s := Scope{Env: m, Redactor: redactor()}
	for offset, want := range map[int]string{
		1: "1 | before\n2 | [redacted: private key", 5: "2 | [redacted: private key",
		23: "2 | [redacted: private key", 24: "24 | after\n",
	} {
		got := useIn(t, s, "read_file", object{"file_path": "pem", "offset": offset}).Result.Text()
		if !strings.HasPrefix(got, want) || strings.Contains(got, "MIIE") ||
			!strings.Contains(got, "24 | after\n") {
			t.Errorf("from line %d: %s", offset, got)
		}
	}
	got := useIn(t, s, "read_file", object{"file_path": "mention", "offset": 3}).Result.Text()
	if !strings.HasPrefix(got, "3 | b\n4 | c\n") {
		t.Errorf("behind a mention of a key: %s", got)
	}
	got = useIn(t, s, "grep", object{"pattern": "x|y", "path": "long"}).Result.Text()
	if strings.Contains(got, "canary") || strings.Count(got, " [line cut]\n") != 2 ||
		strings.Count(got, "y") > 500 {
		t.Errorf("grep shows %s", got)
	}
	broken := strings.TrimSuffix(strings.TrimSuffix(s.Redactor.Text("token = "+key+"\n"), "\n"), "]")
	check(t, useIn(t, s, "write_file", object{"file_path": "conf", "content": broken}),
		KindEditConflict, "was changed; keep it whole, or remove it")
	check(t, useIn(t, s, "shell", object{"command": "echo '" + broken + "]' >conf"}),
		KindValidation, "it has a marker in place of a secret")
	if got := m.files()["conf"]; got != "token = "+key+"\n" {
		t.Errorf("the file has become %q", got)
	}
}
