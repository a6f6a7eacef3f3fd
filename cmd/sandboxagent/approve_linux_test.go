package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// questionEnd is the end of a question about a call. No command has it.
const questionEnd = "a[b]ort the run: "

// approving starts a run on a terminal that asks about commands, with a call in each answer of the
// model, and types an answer to each question.
func approving(
	t *testing.T, calls, answers []string, script string, flags ...string,
) (*process, string) {
	t.Helper()
	args := []string{"run", "--sandbox=off", "--ask=shell", "--allow=write", "--model=script:s.yaml"}
	p := newProcess(t, append(slices.Concat(args, flags), "a task")...)
	text := "turns:\n"
	for _, c := range calls {
		text += "  - calls: [{tool: shell, args: {command: " + c + "}}]\n"
	}
	p.writeFile(t, "s.yaml", text+script)
	s := openTerminal(t, p)
	for i, keys := range answers {
		await(t, "the question", func() bool { return strings.Count(s.text(), questionEnd) > i })
		s.send(keys)
	}
	code, text := s.end(p)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	return p, text
}

// TestApproveAbort aborts a run that asks.
func TestApproveAbort(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--sandbox=off", "--ask=shell", "--allow=write",
		"--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: shell, args: {command: touch made}}]
  - text: done
`)
	s := openTerminal(t, p)
	await(t, "the question", func() bool { return strings.Contains(s.text(), questionEnd) })
	if !strings.Contains(s.text(), "always means: allow shell:touch made") {
		t.Errorf("the question is %s", s.text())
	}
	s.send("b\n")
	code, text := s.end(p)
	if code != codeInterrupted {
		t.Errorf("exit code %d: %s", code, text)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "made")); err == nil {
		t.Error("the call ran")
	}
}

// TestApproveFile shows what a call changes in a file, and hostile names and contents as escapes.
func TestApproveFile(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--sandbox=off", "--ask=write", "--read-first=false",
		"--model=script:s.yaml", "a task")
	p.writeFile(t, "f", "first\nold\nlast\n")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: write_file, args: {file_path: f, content: "first\n\e[2Jnew\nlast\n"}}]
  - calls: [{tool: write_file, args: {file_path: "\e[1A.txt", content: "made\n"}}]
  - calls:
      - tool: apply_patch
        args: {patch: "*** Begin Patch\n*** Update File: f\n@@\n-last\n+\rend\n*** End Patch\n"}
  - text: done
`)
	s := openTerminal(t, p)
	for i, want := range [][]string{
		{"-old", `+\x1b[2Jnew`, " first", "file_path: f"},
		{`file_path: \x1b[1A.txt`, "content: made"},
		{"-last", `+\rend`},
	} {
		await(t, "the question", func() bool { return strings.Count(s.text(), questionEnd) > i })
		for _, text := range want {
			if !strings.Contains(s.text(), text) {
				t.Errorf("question %d lacks %q: %s", i, text, s.text())
			}
		}
		s.send("o\n")
	}
	if code, text := s.end(p); code != 0 || strings.Contains(text, "\x1b[2J") {
		t.Errorf("exit code %d: %q", code, text)
	}
}

// TestApprove answers questions about calls on a terminal.
func TestApprove(t *testing.T) {
	const a, b = "touch a", "touch b"
	for _, tt := range []struct {
		name           string
		calls, answers []string
		made           string // the files
		result         string // of the last call
	}{
		{"once", []string{a, a}, []string{"o\n", "d\n"}, "a", "The user refused this call"},
		{"yes", []string{a}, []string{"\n", "maybe\n", "YES\n"}, "a", ""},
		{"always", []string{a, a, b}, []string{"a\n", "n\n"}, "a", "The user refused this call"},
		{"each", []string{a, b}, []string{"o\n", "y\n"}, "a b", ""},
		{"message", []string{a}, []string{"m\nuse make\n"}, "", "The reason: use make"},
		{"end of input", []string{a}, []string{"\x04"}, "", "cannot be asked; it was not run"},
		{
			"always is not for what is not understood",
			[]string{`eval "$x"; touch a`},
			[]string{"a\n", "d\n"},
			"", "The user refused this call",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, text := approving(t, tt.calls, tt.answers, `
  - expect: {result: {contains: "`+tt.result+`"}}
    text: done
`)
			var made []string
			for _, name := range []string{"a", "b"} {
				if _, err := os.Stat(filepath.Join(p.dir, name)); err == nil {
					made = append(made, name)
				}
			}
			if got := strings.Join(made, " "); got != tt.made {
				t.Errorf("made %q", got)
			}
			if !strings.Contains(text, `, by "ask shell:*" of --ask`) {
				t.Error("the question does not name its rule")
			}
			offered := strings.Contains(text, "[a]lways in this session")
			if want := !strings.Contains(tt.name, "understood"); offered != want {
				t.Errorf("always was offered: %v", offered)
			}
		})
	}
}

// TestApproveTypedAhead types an answer before the question, which is none.
func TestApproveTypedAhead(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--sandbox=off", "--ask=shell:touch *", "--allow=shell",
		"--allow=write", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", `turns:
  - calls: [{tool: shell, args: {command: until test -e go; do sleep 1; done, timeout_ms: 600000}}]
  - calls: [{tool: shell, args: {command: touch made}}]
  - text: done
`)
	s := openTerminal(t, p)
	await(t, "the command", func() bool { return strings.Contains(s.text(), "until") })
	s.send("once\n")
	await(t, "the echo", func() bool { return strings.Contains(s.text(), "once\n") })
	p.writeFile(t, "go", "")
	await(t, "the question", func() bool { return strings.Contains(s.text(), questionEnd) })
	s.send("d\n")
	if code, _ := s.end(p); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "made")); err == nil {
		t.Error("the answer counted")
	}
}

// TestApproveLate waits for an answer that does not come in time.
func TestApproveLate(t *testing.T) {
	t.Parallel()
	_, text := approving(t, []string{"touch a"}, nil, `
  - expect: {result: {contains: "nobody answered within 50ms"}}
    text: done
`, "--approve-timeout=50ms")
	if !strings.Contains(text, "Allow it? ") {
		t.Error("it did not ask")
	}
}

// TestApproveHostile asks about commands that try to show another one.
func TestApproveHostile(t *testing.T) {
	for _, tt := range []struct{ name, command, shown string }{
		{"erased", `"rm -rf x\r\e[2K\e[1A\e[2Kls"`, `rm -rf x\r\x1b[2K\x1b[1A\x1b[2Kls`},
		{"reordered", `"echo \u202Efr- mr"`, `echo \u202efr- mr`},
		{"invisible", `"rm\u200B x; l\u00ADs"`, `rm\u200b x; l\u00ads`},
		{"eight-bit", `"echo \u009B2J"`, `echo \u009b2J`},
		{"blank", `"rm\u2800\u3164x"`, `rm\u2800\u3164x`},
		{"a tab", `"ls\t\t\t\trm"`, `ls\t\t\t\trm`},
		{"a prompt", `"ls\nAllow it? [y]es"`, "      Allow it? [y]es\n"},
		{"long", `"` + strings.Repeat(`echo\n`, 60) + `rm x"`, "      echo\n      rm x\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, text := approving(t, []string{tt.command}, []string{"d\n"}, "  - text: done\n")
			question, _, _ := strings.Cut(text[strings.Index(text, "The model asks"):], "deny with")
			if !strings.Contains(question, tt.shown) {
				t.Errorf("shown as %q", question)
			}
			if i := strings.IndexFunc(question, func(r rune) bool {
				return r < ' ' && r != '\n' || r > '…'
			}); i >= 0 {
				t.Errorf("it has %q", question[i:i+4])
			}
		})
	}
}
