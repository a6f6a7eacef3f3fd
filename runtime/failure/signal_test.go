package failure_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

var at = time.Unix(1, 0)

func failed(kind tool.ErrorKind, message string, err error) *tool.Error {
	return &tool.Error{Kind: kind, Message: message, Err: err}
}

func exited(code int) *tool.Error {
	return &tool.Error{
		Kind: tool.KindShellExit, ExitCode: &code,
		Message: fmt.Sprintf("[exit code %d after 1ms]\n", code),
	}
}

func TestOfCall(t *testing.T) {
	tests := map[string]struct {
		err      *tool.Error
		output   string
		source   event.FailureSource
		class    event.FailureClass
		strategy event.Strategy
		learning string
	}{
		"exit": {
			exited(2), "one\nmain.go:3: undefined: x\n", event.FailureTool, event.ClassRecoverable,
			event.StrategyCorrect, "main.go:3: undefined: x",
		},
		"exit without output": {
			exited(1), "", event.FailureTool, event.ClassRecoverable, event.StrategyCorrect,
			"exit code 1 after 1ms",
		},
		"no such program": {
			exited(127), "sh: 1: foo: not found\n", event.FailureTool, event.ClassRecoverable,
			event.StrategyAlternative, "foo is not installed; use another program, or install it with " +
				"the package manager of the system, such as: apt-get install foo",
		},
		"program that may not run": {
			exited(126), "sh: 1: ./x: Permission denied\n", event.FailureTool, event.ClassPermission,
			event.StrategyAlternative,
			"This file cannot be executed; look at its mode and its first line.",
		},
		"lock of git": {
			exited(128), "fatal: Unable to create '/w/.git/index.lock': File exists.\n\nAnother git " +
				"process seems to be running\n", event.FailureTool, event.ClassRetryable,
			event.StrategyWait,
			"Another process is in the way; wait until it has ended, and repeat the call.",
		},
		"lock of a database": {
			exited(1), "Error: database is locked\n", event.FailureTool, event.ClassRetryable,
			event.StrategyWait,
			"Another process is in the way; wait until it has ended, and repeat the call.",
		},
		"timeout": {
			failed(tool.KindShellTimeout, "[killed]", nil), "a\n", event.FailureTimeout,
			event.ClassRecoverable, event.StrategyAlternative,
			"This command takes longer than its timeout; give it a larger timeout_ms, or less to do.",
		},
		"validation": {
			failed(tool.KindValidation, "path is missing\nmore", nil), "", event.FailureValidation,
			event.ClassRecoverable, event.StrategyCorrect, "path is missing",
		},
		"unknown tool": {
			failed(tool.KindUnknownTool, "unknown tool", nil), "", event.FailureValidation,
			event.ClassRecoverable, event.StrategyAlternative,
			"There is no tool t; use one of those that are offered.",
		},
		"not found": {
			failed(tool.KindNotFound, "a.txt does not exist", fs.ErrNotExist), "", event.FailureTool,
			event.ClassRecoverable, event.StrategyAlternative,
			"a.txt does not exist; look for it before you use it.",
		},
		"permission": {
			failed(tool.KindPermission, "no permission: a", fs.ErrPermission), "", event.FailureTool,
			event.ClassPermission, event.StrategyAlternative,
			"This is not permitted here; use a path below the working directory.",
		},
		"path outside": {
			failed(tool.KindPermission, "outside", env.ErrOutside), "", event.FailureTool,
			event.ClassPermission, event.StrategyAlternative,
			"This is not permitted here; use a path below the working directory.",
		},
		"read-only environment": {
			failed(tool.KindPermission, "read-only", env.ErrReadOnly), "", event.FailureTool,
			event.ClassPermission, event.StrategyAskUser,
			"This is not permitted; only the user can allow it.",
		},
		"refused call": {
			failed(tool.KindPermission, "no rule allows it", nil), "", event.FailureTool,
			event.ClassPermission, event.StrategyAskUser,
			"This is not permitted; only the user can allow it.",
		},
		"gone": {
			failed(tool.KindEnvironment, "the environment no longer exists", env.ErrGone), "",
			event.FailureTool, event.ClassPermanent, event.StrategyTerminate,
			"the environment no longer exists",
		},
		"unknown outcome": {
			failed(tool.KindEnvironment, "lost", fmt.Errorf("x: %w", env.ErrUnknownOutcome)), "",
			event.FailureTool, event.ClassRecoverable, event.StrategyCorrect,
			"The connection was lost; look at what was done before you repeat the call.",
		},
		"another failure of the environment": {
			failed(tool.KindEnvironment, "not reached", nil), "", event.FailureTool,
			event.ClassRetryable, event.StrategyRetry, "not reached",
		},
		"busy file": {
			failed(tool.KindOther, "f is in use", env.ErrBusy), "", event.FailureTool,
			event.ClassRetryable, event.StrategyWait,
			"Another process is in the way; wait until it has ended, and repeat the call.",
		},
		"full disk": {
			failed(tool.KindOther, "the disk is full", env.ErrNoSpace), "", event.FailureTool,
			event.ClassRecoverable, event.StrategyAlternative, "the disk is full",
		},
		"panic": {
			failed(tool.KindPanic, "the tool t panicked", nil), "", event.FailureTool,
			event.ClassRecoverable, event.StrategyAlternative, "the tool t panicked",
		},
		"canceled": {
			failed(tool.KindCanceled, "not run", nil), "", event.FailureTool, event.ClassRetryable,
			event.StrategyRetry, "not run",
		},
		"conflict": {
			failed(tool.KindEditConflict, "read it again", nil), "", event.FailureTool,
			event.ClassRecoverable, event.StrategyCorrect, "read it again",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := llm.ToolCall{ID: "a", Name: "t", Arguments: `{"z": 1.50, "a":"<b>"}`}
			got := failure.OfCall(c, tt.err, tt.output+tt.err.Message, at)
			want := event.Failure{
				Source: tt.source, Kind: string(tt.err.Kind), Class: tt.class, Strategy: tt.strategy,
				Message: tt.err.Message, ExitCode: tt.err.ExitCode, Output: tt.output, Tool: "t",
				CallID: "a", Arguments: `{"a":"<b>","z":1.50}`, Learning: tt.learning, Time: at,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if got.Retryable() != (tt.class == event.ClassRetryable) {
				t.Errorf("retryable: %t", got.Retryable())
			}
			advice := failure.Advice(got, nil)
			if strings.Contains(advice, "\n") || !strings.Contains(advice, string(tt.class)) ||
				strings.Contains(advice, ": .") {
				t.Errorf("advice %q", advice)
			}
		})
	}
}

// TestLearningOfOutputs has the outputs of programs that fail.
func TestLearningOfOutputs(t *testing.T) {
	for output, want := range map[string]string{
		"ok  a\n--- FAIL: TestX (0.00s)\n    x_test.go:7: got 1, want 2\n" +
			"FAIL\nFAIL\tx\t0.1s\nFAIL\n": "x_test.go:7: got 1, want 2",
		"cc -c x.c\nx.c:3:1: error: y undeclared\n" +
			"make: *** [Makefile:2: x] Error 1\n": "x.c:3:1: error: y undeclared",
		"Traceback\n  File \"x.py\", line 3\n" +
			"NameError: name 'y' is not defined\n": "NameError: name 'y' is not defined",
		"E   assert 1 == 2\nx.py:3: AssertionError\n" +
			"=== 1 failed in 0.1s ===\n": "x.py:3: AssertionError",
		"one\ntwo\n\n": "two",
		"FAIL\n":       "FAIL",
		"cat: f: No such file or directory\nexit status 1": "cat: f: No such file or directory",
	} {
		f := failure.OfCall(llm.ToolCall{Name: "shell"}, exited(1), output+exited(1).Message, at)
		if f.Learning != want {
			t.Errorf("%q from %q, want %q", f.Learning, output, want)
		}
	}
}

// TestMissing has commands that fail because something is not installed.
func TestMissing(t *testing.T) {
	const use = " is not installed; use another program, or install it with the package manager of " +
		"the system, such as: apt-get install "
	const found = " was not found; if it is no part of this project, install the package that has " +
		"it, such as: "
	for _, tt := range []struct {
		exit         int
		output, want string
	}{
		{127, "sh: 1: foo: not found\n", "foo" + use + "foo"},
		{127, "bash: line 1: g++: command not found\n", "g++" + use + "g++"},
		{127, "sh: foo: not found\n", "foo" + use + "foo"},
		{127, "zsh:1: command not found: foo\n", "foo" + use + "foo"},
		{127, "sh: 1: ./x: not found\n", "The program is not installed here; use another one."},
		{127, "sh: 1: -x: not found\n", "The program is not installed here; use another one."},
		{
			1, "ModuleNotFoundError: No module named 'yaml.x'\n",
			"yaml" + found + "python3 -m pip install yaml",
		},
		{
			1, "Error: Cannot find module '@a/b-c'\nRequire stack:\n",
			"@a/b-c" + found + "npm install @a/b-c",
		},
		{1, "Error: Cannot find module './x'\n", "Error: Cannot find module './x'"},
		{1, "Error: Cannot find module 'src/x'\n", "Error: Cannot find module 'src/x'"},
		{
			1, "x.go:3:8: no required module provides package a.b/c; to add it:\n\tgo get a.b/c\n",
			"a.b/c" + found + "go get a.b/c",
		},
		{
			101, "error[E0463]: can't find crate for `serde`\n",
			"serde" + found + "cargo add serde",
		},
		{
			1, "cannot load such file -- rack (LoadError)\n",
			"rack" + found + "gem install rack",
		},
	} {
		f := failure.OfCall(
			llm.ToolCall{Name: "shell"}, exited(tt.exit), tt.output+exited(tt.exit).Message, at)
		if f.Learning != tt.want {
			t.Errorf("%q from %q, want %q", f.Learning, tt.output, tt.want)
		}
	}
}

// TestAdviceNamesTools has failures after which another tool helps.
func TestAdviceNamesTools(t *testing.T) {
	offered := []string{"edit_file", "glob", "list_dir", "read_file", "shell"}
	for _, tt := range []struct {
		tool string
		kind tool.ErrorKind
		want string
	}{
		{"Bash", tool.KindUnknownTool, "shell"},
		{"apply_patch", tool.KindUnknownTool, "edit_file"},
		{"write", tool.KindUnknownTool, ""},
		{"other", tool.KindUnknownTool, ""},
		{"read_file", tool.KindNotFound, "glob"},
		{"glob", tool.KindNotFound, "list_dir"},
		{"shell", tool.KindShellTimeout, ""},
	} {
		f := failure.OfCall(llm.ToolCall{Name: tt.tool}, failed(tt.kind, "no", nil), "", at)
		_, got, _ := strings.Cut(failure.Advice(f, offered), ", such as the tool ")
		if got = strings.TrimSuffix(got, ".]"); got != tt.want {
			t.Errorf("%s after %s of %s, want %s", got, tt.kind, tt.tool, tt.want)
		}
	}
}

// TestOfCallBounds has long texts, which are cut between characters.
func TestOfCallBounds(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	c := llm.ToolCall{Arguments: `{"command":"` + long + `"}`}
	e := exited(1)
	e.Message = "x" + long
	f := failure.OfCall(c, e, "x"+long+e.Message, at)
	for name, text := range map[string]string{
		"message": f.Message, "output": f.Output, "arguments": f.Arguments, "learning": f.Learning,
	} {
		if len(text) > 2100 || text == "" || !utf8.ValidString(text) {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if !strings.HasSuffix(f.Output, "éé") {
		t.Errorf("the output ends with %q", f.Output[len(f.Output)-10:])
	}
}

func TestNormalize(t *testing.T) {
	same := [][2]string{
		{"main.go:12: undefined: x", "main.go:7: undefined: x"},
		{`open "a.txt": no such file`, "open 'a.txt':  no such file"},
		{"killed after 1.5s", "killed after 320ms"},
		{"commit 0123abc not found", "commit fedcba9 not found"},
		{"at 0xc000123", "at 0xC000FFF"},
		{"/tmp/go-build123/b1", "/tmp/go-build9/b22"},
	}
	for _, pair := range same {
		if a, b := failure.Normalize(pair[0]), failure.Normalize(pair[1]); a != b {
			t.Errorf("%q and %q differ: %q, %q", pair[0], pair[1], a, b)
		}
	}
	if a, b := failure.Normalize("undefined: x"), failure.Normalize("undefined: y"); a == b {
		t.Errorf("both are %q", a)
	}
}

func TestSimilar(t *testing.T) {
	past := func(session, name, learning, remedy string) failure.Past {
		return failure.Past{
			Failure:     event.Failure{Tool: name, Kind: "shell_exit", Learning: learning},
			PastFailure: event.PastFailure{SessionID: session, Remedy: remedy},
		}
	}
	f := event.Failure{Tool: "shell", Kind: "shell_exit", Learning: "line 7: no x"}
	for name, tt := range map[string]struct {
		past []failure.Past
		want string
	}{
		"none":         {nil, ""},
		"another tool": {[]failure.Past{past("a", "grep", "line 7: no x", "r")}, ""},
		"another text": {[]failure.Past{past("a", "shell", "line 7: no y", "r")}, ""},
		"the last": {[]failure.Past{
			past("a", "shell", "line 1: no x", ""), past("b", "shell", "line 2: no x", ""),
		}, "b"},
		"with a remedy": {[]failure.Past{
			past("a", "shell", "line 1: no x", "r"), past("b", "shell", "line 2: no x", ""),
		}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			got := failure.Similar(f, tt.past)
			if got == nil && tt.want != "" || got != nil && got.SessionID != tt.want {
				t.Errorf("%+v, want %q", got, tt.want)
			}
		})
	}
}

// TestSimilarCalls has failures whose learnings say nothing about their calls.
func TestSimilarCalls(t *testing.T) {
	failed := func(kind tool.ErrorKind, name, args string) event.Failure {
		c := llm.ToolCall{ID: "c", Name: name, Arguments: args}
		return failure.OfCall(c, &tool.Error{Kind: kind, Message: "m"}, "", time.Now())
	}
	for _, tt := range []struct {
		kind           tool.ErrorKind
		name, old, now string
		similar        bool
	}{
		{tool.KindShellTimeout, "shell", `{"command":"go test a"}`, `{"command":"go test -v b"}`, true},
		{tool.KindShellTimeout, "shell", `{"command":"npm install"}`, `{"command":"go test"}`, false},
		{tool.KindPermission, "write_file", `{"file_path":"a"}`, `{"file_path":"a"}`, true},
		{tool.KindPermission, "write_file", `{"file_path":"a"}`, `{"file_path":"b"}`, false},
		// its message tells one from another
		{tool.KindNotFound, "read_file", `{"file_path":"a"}`, `{"file_path":"b"}`, true},
	} {
		past := []failure.Past{{Failure: failed(tt.kind, tt.name, tt.old)}}
		if got := failure.Similar(failed(tt.kind, tt.name, tt.now), past); (got != nil) != tt.similar {
			t.Errorf("%s after %s: %+v", tt.now, tt.old, got)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("main.go:12: \"undefined\" 0xff deadbeef 1.5s")
	f.Fuzz(func(t *testing.T, text string) {
		once := failure.Normalize(text)
		if again := failure.Normalize(once); again != once {
			t.Errorf("%q becomes %q", once, again)
		}
	})
}
