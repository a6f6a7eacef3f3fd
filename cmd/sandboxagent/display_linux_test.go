package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// rendered returns the lines that the display leaves on a terminal.
func rendered(t *testing.T, text string) []string {
	t.Helper()
	lines, at := []string{""}, 0
	for len(text) > 0 {
		sequence := drawing.FindStringIndex(text)
		switch {
		case sequence != nil && sequence[0] == 0:
			switch part := text[:sequence[1]]; {
			case strings.HasPrefix(part, "\r"):
				lines[at] = ""
			case strings.HasPrefix(part, "\x1b[A"):
				if at--; at < 0 {
					t.Fatal("the display goes above its first line")
				}
				lines[at] = ""
			}
			text = text[sequence[1]:]
		case text[0] == '\n':
			if at++; at == len(lines) {
				lines = append(lines, "")
			}
			text = text[1:]
		default:
			lines[at] += text[:1]
			text = text[1:]
		}
	}
	return lines
}

// watchRun runs the program on a terminal. It waits for each text, and then lets the model or its
// command go on. It returns the lines that are left at the end.
func watchRun(t *testing.T, p *process, want int, await ...string) (lines []string, all string) {
	t.Helper()
	s := openTerminal(t, p)
	for _, text := range await {
		s.await(text)
	}
	p.writeFile(t, "go-on", "")
	code, text := s.end(p)
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	if part := obeyed(drawing.ReplaceAllString(text, "")); part != "" {
		t.Errorf("the terminal obeys %q", part)
	}
	return rendered(t, text), text
}

func contains(lines []string, text string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) })
}

// TestAnswerStreams checks that an answer is shown while it comes, and is left once, at the end.
func TestAnswerStreams(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
	p.Env = append(p.Env, beVar+"=sandboxagent-pacedmodel")
	p.writeFile(t, "s.yaml", "turns: [{text: ok}]\n")
	lines, _ := watchRun(t, p, 0, "> answering", "\n      | The first part of the answer.")
	end := []string{"The first part of the answer.", "And the rest.", ""}
	if got := lines[max(len(lines)-3, 0):]; !slices.Equal(got, end) {
		t.Errorf("the end is %q", got)
	}
	if n := strings.Count(strings.Join(lines, "\n"), "The first part"); n != 1 {
		t.Errorf("the answer is left %d times: %q", n, lines)
	}
}

// TestAbortedAnswer checks that a run that is aborted during its answer, or after a step, prints
// none.
func TestAbortedAnswer(t *testing.T) {
	for _, program := range []string{"sandboxagent-pacedmodel", "sandboxagent"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
			p.Env = append(p.Env, beVar+"="+program)
			p.writeFile(t, "s.yaml", `turns:
  - text: I look.
    calls: [{tool: shell, args: {command: "touch ready; sleep 1000; : MARKER", timeout_ms: 600000}}]
`)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if program == "sandboxagent" {
				p.awaitFile(t, "ready")
			} else {
				await(t, "the first request", func() bool {
					names, _ := filepath.Glob(filepath.Join(p.dir, ".state", "sessions", "*", "journal.jsonl"))
					return len(names) > 0
				})
			}
			if err := p.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := p.code(t); code != 130 || p.stdout.Len() > 0 {
				t.Errorf("exit code %d, stdout %q", code, p.stdout.String())
			}
		})
	}
}

// TestCommandOutputIsShown checks that the last lines of a running command are below its call, and
// are folded to their number at its end.
func TestCommandOutputIsShown(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "run", "--yes", "--model=script:s.yaml", "a task")
	p.writeFile(t, "s.yaml", `turns:
  - calls:
      - tool: shell
        args:
          timeout_ms: 600000
          command: |
            printf '\033]52;c;aGk=\007'; seq 1 100 | sed 's/^/number /'
            until test -e go-on; do sleep 0.05; done
  - text: Done.
`)
	lines, all := watchRun(t, p, 0, "\n      | number 94\n", "\n      | number 100")
	if strings.Contains(all, "| number 50\n") && strings.Contains(all, "| number 1\n") {
		t.Error("all lines are shown")
	}
	if contains(lines, "| number") || !contains(lines, "ok    shell printf") ||
		!contains(lines, "s, 100 lines)") {
		t.Errorf("left are %q", lines)
	}
}

// TestOutcomeIsShown checks the rows about edits, failures and changes after their end.
func TestOutcomeIsShown(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	p := newProcess(t, "run", "--yes", "--patch=p.diff", "--read-first=false",
		"--model=script:s.yaml", "a task")
	p.writeFile(t, "a.txt", "one\ntwo\nthree\n")
	p.writeFile(t, "s.yaml", `turns:
  - calls:
      - tool: apply_patch
        args:
          patch: |
            *** Begin Patch
            *** Update File: a.txt
            @@
             one
            -two
            +zwei\e[2J
            +more
            *** End Patch
      - {tool: shell, args: {command: "echo by the shell >b.txt; echo the reason; exit 3"}}
      - {tool: write_file, args: {file_path: c.txt, content: "\e[2J1\n2\n3\n4\n5\n6\n7\n8\n"}}
  - text: Done.
`)
	p.writeFile(t, "go-on", "")
	lines, all := watchRun(t, p, 0)
	for _, want := range []string{
		"      -two", "      +zwei", "fail  shell echo by the shell", "      | the reason",
		"      | [exit code 3 after", "      +6", "      … 2 more lines",
		"      modified a.txt +2 -1", "      created  b.txt +1", "      created  c.txt +8",
		"      patch    " + filepath.Join(p.dir, "p.diff"),
		"      journal  " + filepath.Join(p.dir, ".state", "sessions"),
	} {
		if !contains(lines, want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	for _, want := range []string{"\x1b[31m-two\x1b[0m", "\x1b[32m+more\x1b[0m"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if contains(lines, ".state") && contains(lines, "created  .state") {
		t.Error("the state of the program counts as a change")
	}
}

// TestDisplayInCI checks that nothing controls the terminal of a service for continuous
// integration, and that --quiet leaves errors only.
func TestDisplayInCI(t *testing.T) {
	for _, tt := range []struct {
		name, flag, model, want string
		code                    int
	}{
		{"ci", "--yes", "turns: [{text: ok}]\n", "end   completed: 1 model call, 0 tool calls", 0},
		{"quiet", "-q", "turns: [{text: ok}]\n", "", 0},
		{
			"quiet failure", "-q", "turns: [{error: {status: 401, message: no}}]\n",
			"sandboxagent: ", 5,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "run", "--yes", tt.flag, "--model=script:s.yaml", "a task")
			p.writeFile(t, "s.yaml", tt.model)
			s := openTerminal(t, p, "CI=true")
			code, text := s.end(p)
			lines := strings.Count(text, "\n")
			if code != tt.code || strings.ContainsAny(text, "\x1b>") || !strings.Contains(text, tt.want) ||
				tt.flag == "-q" && lines != 1 {
				t.Errorf("exit code %d, screen %q", code, text)
			}
		})
	}
}

// TestLateInput checks that a silent pipe is awaited where somebody watches, and that a FIFO
// without a writer does not keep a run that is interrupted.
func TestLateInput(t *testing.T) {
	start := func(t *testing.T, flags ...string) (*process, *screen, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
		args := append([]string{"run", "--yes", "--model=script:s.yaml", "a task"}, flags...)
		p := newProcess(t, args...)
		p.writeFile(t, "s.yaml", "turns: [{expect: {user: {contains: late data}}, text: seen}]\n")
		if err := syscall.Mkfifo(filepath.Join(p.dir, "fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Stdin = r
		return p, openTerminal(t, p), w
	}
	t.Run("pipe", func(t *testing.T) {
		t.Parallel()
		p, s, w := start(t)
		s.await("note: waiting for the end of standard input")
		if _, err := w.WriteString("late data"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if code, text := s.end(p); code != 0 || !strings.HasSuffix(text, "seen\n") {
			t.Errorf("exit code %d, screen %q", code, text)
		}
	})
	t.Run("FIFO", func(t *testing.T) {
		t.Parallel()
		p, s, w := start(t, "--file=fifo")
		if _, err := w.WriteString("data"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		s.await("note: 4 bytes of standard input go with the task") // then it opens the FIFO
		s.send("\x03")
		if code, _ := s.end(p); code != 130 {
			t.Errorf("exit code %d", code)
		}
	})
}
