package envtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func execCases() []testCase {
	return []testCase{
		{name: "exit_codes", rule: ruleExit, run: execExitCodes},
		{name: "killed_by_its_own_signal", rule: ruleExit, run: execSelfSignal},
		{name: "fast_signal_death_is_no_timeout", rule: ruleTimeout, run: execFastSignal},
		{name: "program_missing", rule: ruleStart, run: execMissing},
		{name: "program_not_executable", rule: ruleStart, run: execNotExecutable},
		{name: "interpreter_missing", rule: ruleStart, run: execInterpreterMissing},
		{name: "bad_argv", rule: ruleStart, run: execBadArgv},
		{name: "bad_vars", rule: ruleStart, run: execBadVars},
		{name: "user", rule: ruleUser, run: execUser},
		{name: "file_just_written", rule: ruleStart, run: execJustWritten},
		{name: "argv_exact", rule: ruleArgv, run: execArgvExact},
		{name: "argv_zero", rule: ruleArgv, run: execArgvZero},
		{name: "argv_large", rule: ruleArgv, run: execArgvLarge},
		{name: "argv_too_large", rule: ruleStart, run: execArgvTooLarge},
		{name: "no_shell", rule: ruleArgv, run: execNoShell},
		{name: "no_login_shell", rule: ruleArgv, run: execNoLoginShell},
		{name: "path_lookup", rule: rulePath, run: execPathLookup},
		{name: "program_relative", rule: ruleNames, run: execRelativeProgram},
		{name: "dir_default", rule: ruleNames, run: execDirDefault},
		{name: "dir_given", rule: ruleDir, run: execDirGiven},
		{name: "dir_bad", rule: ruleDir, run: execDirBad},
		{name: "vars", rule: ruleVars, run: execVars},
		{name: "vars_duplicates", rule: ruleVars, run: execVarsDuplicates},
		{name: "vars_do_not_stay", rule: ruleVars, run: execVarsNotPersisted},
		{name: "vars_base", rule: ruleVars, run: execVarsBase},
		{name: "stdin", rule: ruleStdin, run: execStdin},
		{name: "stdin_empty", rule: ruleStdin, run: execStdinEmpty},
		{name: "stdin_large", rule: ruleStdin, run: execStdinLarge},
		{name: "stdin_unread", rule: ruleStdinUnread, run: execStdinUnread},
		{name: "stdin_reader_blocks", rule: ruleStdinUnread, run: execStdinBlocks},
		{name: "cancelled_before", rule: ruleCancel, run: execCancelledBefore},
		{name: "parallel_50", rule: ruleConcurrent, run: execParallel},
		{name: "runs_once", rule: ruleOnce, run: execOnce},
	}
}

func execExitCodes(c *caseT) {
	for _, code := range []int{0, 1, 2, 70, 126, 127, 128, 137, 143, 255} {
		c.wantExit(fmt.Sprintf("exit %d", code), c.exec(c.script(`exit "$1"`, strconv.Itoa(code))), code)
	}
	r := c.exec(c.script("no-such-program-of-envtest"))
	c.wantExit("a shell that does not find a program", r, 127)
}

func execSelfSignal(c *caseT) {
	for _, s := range []struct {
		name string
		n    int
	}{{"SEGV", 11}, {"KILL", 9}, {"TERM", 15}, {"ABRT", 6}, {"PIPE", 13}} {
		r := c.exec(c.script(`ulimit -c 0; printf out; kill -"$1" $$`, s.name))
		if r.err != nil || r.ExitCode != 128+s.n || r.Signal != "SIG"+s.name || r.TimedOut {
			c.errorf("a command that kills itself with SIG%s: %+v, error %v; want exit code %d and "+
				"Signal SIG%s", s.name, r.Result, r.err, 128+s.n, s.name)
		}
		c.equal("its output", r.stdout, "out")
	}
}

func execFastSignal(c *caseT) {
	cmd := c.script("kill -TERM $$")
	cmd.Timeout = time.Minute
	if r := c.exec(cmd); r.err != nil || r.TimedOut || r.ExitCode != 143 {
		c.errorf("SIGTERM long before the timeout: %+v, error %v; want exit code 143 and no timeout",
			r.Result, r.err)
	}
}

// wantStartError records a failure unless r is a *StartError for cmd that wraps target, if that is
// not nil.
func (c *caseT) wantStartError(what string, r ran, cmd env.Command, target error) {
	var start *env.StartError
	if !errors.As(r.err, &start) {
		c.errorf("%s: %+v, error %v; want a *StartError", what, r.Result, r.err)
		return
	}
	if fmt.Sprintf("%q", start.Argv) != fmt.Sprintf("%q", cmd.Argv) {
		c.errorf("%s: StartError.Argv is %.200q, want %.200q", what, start.Argv, cmd.Argv)
	}
	if target != nil {
		c.is(what, r.err, target)
	}
}

func execMissing(c *caseT) {
	for _, program := range []string{
		"no-such-program-of-envtest", c.abs("no-such-program"),
		c.name("no-such-program"), "no/such/directory/program",
	} {
		cmd := env.Command{Argv: []string{program, "arg"}}
		c.wantStartError(program, c.exec(cmd), cmd, fs.ErrNotExist)
	}
}

func execNotExecutable(c *caseT) {
	c.unix()
	c.sh(`echo 'exit 0' >plain; chmod 644 plain`)
	cmd := env.Command{Argv: []string{c.abs("plain")}}
	c.wantStartError("a file without the right to execute", c.exec(cmd), cmd, fs.ErrPermission)
	cmd = env.Command{Argv: []string{c.abs()}}
	c.wantStartError("a directory as program", c.exec(cmd), cmd, nil)
	cmd = c.script("./plain")
	cmd.Dir = c.dir
	c.wantExit("a shell that may not execute a program", c.exec(cmd), 126)
}

func execInterpreterMissing(c *caseT) {
	c.unix()
	c.sh(`printf '#!/no/such/interpreter\n' >script; echo 'echo run by a shell' >text
chmod 755 script text`)
	cmd := env.Command{Argv: []string{c.abs("script")}}
	c.wantStartError("a script with a missing interpreter", c.exec(cmd), cmd, fs.ErrNotExist)
	cmd = env.Command{Argv: []string{c.abs("text")}}
	c.wantStartError("a text that names no interpreter", c.exec(cmd), cmd, nil)
}

func execBadArgv(c *caseT) {
	for what, cmd := range map[string]env.Command{
		"no Argv":              {},
		"an empty program":     {Argv: []string{""}},
		"a NUL in an argument": {Argv: []string{"sh", "-c", "exit 0", "a\x00b"}},
	} {
		c.wantStartError(what, c.exec(cmd), cmd, nil)
	}
}

func execBadVars(c *caseT) {
	cmd := c.script("exit 0")
	cmd.Vars = []string{"A=a\x00b"}
	c.wantStartError("a NUL in a variable", c.exec(cmd), cmd, nil)
}

func execUser(c *caseT) {
	c.unix()
	cmd := c.script("id -u && id -g")
	cmd.User = "4711:815"
	if r := c.exec(cmd); errors.Is(r.err, errors.ErrUnsupported) {
		c.wantStartError("a command as another user", r, cmd, errors.ErrUnsupported)
	} else {
		c.wantExit("a command as another user", r, 0)
		c.equal("the user and the group of a command", r.stdout, "4711\n815\n")
	}
	cmd.User = "no user"
	c.wantStartError("a command as a user that cannot be", c.exec(cmd), cmd, nil)
}

// execJustWritten writes programs and runs them at once, several at a time. Systems refuse to run a
// file that some process still has open for writing, and a process that is being started elsewhere
// holds every open file for a moment.
func execJustWritten(c *caseT) {
	c.script("") // Ends the case without sh.
	c.unix()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				name := fmt.Sprintf("program-%d-%d", i, j)
				body := fmt.Sprintf("#!/bin/sh\nexit %d\n", j)
				if _, err := c.e.WriteFile(c.ctx, c.name(name), strings.NewReader(body),
					env.WriteOptions{Mode: 0o755}); err != nil {
					c.errorf("writing a program: %v", err)
					return
				}
				c.wantExit("a program that was just written", c.exec(env.Command{Argv: []string{c.abs(name)}}),
					j)
			}
		})
	}
	wg.Wait()
}

// awkward are arguments, and contents of variables, that are easily damaged on the way.
var awkward = []string{
	"", " ", "a b", " lead and trail ", `"`, `'`, `''`, `"'"`, "\n", "a\nb\n", "\t", "\r\n", "*", "?",
	"[a-z]", "~", "$HOME", "${HOME}",
	"$(id)", "`id`", "-n", "-", "--", "--help", `\`, `\\`, `\n`, "a=b", "=", "{a,b}", ";", "&&", "||",
	"|", ">", "<", "#", "!", "%s", "%",
	"世界", "é", "e\u0301", "😀", "\x7f\x1b[0m", "\xff\xfe", "\xc3\x28", "/", ".", "..", "C:\\x",
	"&", "(", ")", "@file", "%PATH%", "^",
}

func execArgvExact(c *caseT) {
	r := c.exec(c.script(`printf '%s\0' "$@"`, awkward...))
	c.wantExit("printf", r, 0)
	c.equal("the arguments that a program sees", r.stdout, strings.Join(awkward, "\x00")+"\x00")
	c.equal("the number of arguments", c.exec(c.script(`echo $#`)).stdout, "0\n")
}

func execArgvZero(c *caseT) {
	c.unix()
	c.sh(`ln -s /bin/sh sh`)
	for _, program := range []string{"sh", "/bin/sh", "./sh"} {
		cmd := env.Command{Argv: []string{program, "-c", `printf %s "$0"`}, Dir: c.dir}
		c.equal("argv[0] that a program sees", c.exec(cmd).stdout, program)
	}
}

func execArgvLarge(c *caseT) {
	var args []string
	var want strings.Builder
	for i := range 16 {
		args = append(args, strings.Repeat(string(rune('a'+i)), 64<<10))
		want.WriteString(args[i] + "\n")
	}
	r := c.exec(c.script(`for a; do printf '%s\n' "$a"; done`, args...))
	c.wantExit("16 arguments of 64 KiB", r, 0)
	c.equal("16 arguments of 64 KiB", r.stdout, want.String())
}

func execArgvTooLarge(c *caseT) {
	cmd := c.script("exit 0", strings.Repeat("x", 16<<20))
	c.wantStartError("an argument of 16 MiB", c.exec(cmd), cmd, nil)
}

func execNoShell(c *caseT) {
	for _, program := range []string{"exit 3", "echo $HOME", "sh -c true", "true; true"} {
		cmd := env.Command{Argv: []string{program}}
		c.wantStartError(program, c.exec(cmd), cmd, fs.ErrNotExist)
	}
}

func execNoLoginShell(c *caseT) {
	c.sh(`for f in .profile .bash_profile .bashrc .zshenv .zprofile
do echo 'echo a start-up file was read' >"$f"; done`)
	cmd := c.script(`printf '%s' "$0"`)
	cmd.Vars = []string{"HOME=" + c.abs()}
	r := c.exec(cmd)
	c.wantExit("sh", r, 0)
	c.equal("the output of a shell whose HOME has start-up files", r.stdout, "sh")
}

func execPathLookup(c *caseT) {
	c.unix()
	c.sh(`mkdir bin1 bin2; for d in bin1 bin2
do printf '#!/bin/sh\necho %s\n' "$d" >"$d/envtest-tool"; chmod 755 "$d/envtest-tool"; done`)
	path := func(elem ...string) string {
		return "PATH=" + strings.Join(append(elem, "/usr/bin", "/bin"), ":")
	}
	cmd := env.Command{Argv: []string{"envtest-tool"}}
	c.wantStartError("a program that is in no directory of PATH", c.exec(cmd), cmd, fs.ErrNotExist)
	for _, tc := range []struct {
		vars []string
		want string
	}{
		{[]string{path(c.abs("bin1"))}, "bin1\n"},
		{[]string{path(c.abs("bin2"), c.abs("bin1"))}, "bin2\n"},
		{[]string{path(c.abs("bin1")), path(c.abs("bin2"))}, "bin2\n"},
	} {
		cmd.Vars = tc.vars
		r := c.exec(cmd)
		c.wantExit(fmt.Sprint(tc.vars), r, 0)
		c.equal(fmt.Sprint(tc.vars), r.stdout, tc.want)
	}
	cmd.Vars = []string{path(c.abs("bin1")), path()}
	c.wantStartError("a program that the last PATH does not have", c.exec(cmd), cmd, fs.ErrNotExist)
}

func execRelativeProgram(c *caseT) {
	c.unix()
	c.sh(`printf '#!/bin/sh\necho ran\n' >tool; chmod 755 tool`)
	r := c.exec(env.Command{Argv: []string{c.name("tool")}})
	c.wantExit("a program named relative to the working directory", r, 0)
	c.equal("its output", r.stdout, "ran\n")
}

func execDirDefault(c *caseT) {
	r := c.exec(c.script("pwd -P"))
	c.equal("pwd -P of a command without Dir, against that with Dir of Info.WorkDir", r.stdout,
		c.shIn(c.e.Info().WorkDir, "pwd -P"))
	c.write(c.name("here"), "x")
	c.wantExit("a file written with a relative name, seen from a command without Dir",
		c.exec(c.script(`test -f "$1"`, c.name("here"))), 0)
}

func execDirGiven(c *caseT) {
	c.sh(`mkdir -p 'sub/with space' ./-dash 'quo"te$HOME'; ln -s sub to-sub`)
	base := strings.TrimSuffix(c.sh("pwd -P"), "\n")
	for dir, want := range map[string]string{
		c.name("sub"): "/sub", c.abs("sub"): "/sub", c.name("sub", "with space"): "/sub/with space",
		c.name("-dash"): "/-dash", c.name(`quo"te$HOME`): `/quo"te$HOME`, c.name("to-sub"): "/sub",
		c.name("sub", "..", "sub"): "/sub",
	} {
		c.equal("pwd -P in "+dir, c.shIn(dir, "pwd -P"), base+want+"\n")
	}
}

func execDirBad(c *caseT) {
	c.write(c.name("file"), "x")
	for _, tc := range []struct {
		dir    string
		target error
	}{
		{c.name("missing"), fs.ErrNotExist},
		{c.abs("missing"), fs.ErrNotExist},
		{c.name("file"), env.ErrNotDir},
		{c.name("file", "sub"), env.ErrNotDir},
		{"a\x00b", fs.ErrInvalid},
	} {
		cmd := c.script(`echo ran >>"$1"`, c.abs("ran"))
		cmd.Dir = tc.dir
		r := c.exec(cmd)
		var pathError *fs.PathError
		if !errors.As(r.err, &pathError) || pathError.Op != "chdir" {
			c.errorf("Dir %q: %+v, error %v; want a *fs.PathError with Op chdir", tc.dir, r.Result, r.err)
			continue
		}
		c.is(fmt.Sprintf("Dir %q", tc.dir), r.err, tc.target)
	}
	if _, err := c.e.Stat(c.ctx, c.name("ran")); !errors.Is(err, fs.ErrNotExist) {
		c.errorf("a command with a bad Dir ran (Stat of its output file: %v)", err)
	}
}

func execVars(c *caseT) {
	var vars []string
	var want strings.Builder
	var text strings.Builder
	text.WriteString(`printf '%s\0'`)
	for i, value := range awkward {
		name := fmt.Sprintf("ENVTEST_%d", i)
		vars = append(vars, name+"="+value)
		fmt.Fprintf(&text, ` "${%s-unset}"`, name)
		want.WriteString(value + "\x00")
	}
	cmd := c.script(text.String())
	cmd.Vars = vars
	r := c.exec(cmd)
	c.wantExit("printf", r, 0)
	c.equal("the values that a program sees", r.stdout, want.String())
}

func execVarsDuplicates(c *caseT) {
	c.tool("env")
	cmd := env.Command{Argv: []string{"env"}, Vars: []string{
		"ENVTEST_A=first", "ENVTEST_B=b",
		"ENVTEST_A=second", "ENVTEST_A=last", "HOME=/envtest",
	}}
	r := c.exec(cmd)
	c.wantExit("env", r, 0)
	for name, want := range map[string]string{
		"ENVTEST_A": "last", "ENVTEST_B": "b",
		"HOME": "/envtest",
	} {
		var got []string
		for line := range strings.Lines(r.stdout) {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				got = append(got, strings.TrimSuffix(value, "\n"))
			}
		}
		if len(got) != 1 || got[0] != want {
			c.errorf("a program sees %s with values %q, want only %q", name, got, want)
		}
	}
}

func execVarsNotPersisted(c *caseT) {
	cmd := c.script(`export ENVTEST_OWN=1; cd /; umask 000`)
	cmd.Vars = []string{"ENVTEST_STAY=1"}
	c.wantExit("a command with a variable", c.exec(cmd), 0)
	r := c.exec(c.script(`echo "${ENVTEST_STAY-unset} ${ENVTEST_OWN-unset}"`))
	c.equal("the variables of the next command", r.stdout, "unset unset\n")
}

func execVarsBase(c *caseT) {
	c.tool("env")
	r := c.exec(env.Command{Argv: []string{"env"}})
	if !strings.Contains("\n"+r.stdout, "\nPATH=") {
		c.errorf("a command without Vars sees no PATH, only %q", r.stdout)
	}
	cmd := env.Command{Argv: []string{"env"}, Vars: []string{"ENVTEST_MORE=1"}}
	if r := c.exec(cmd); !strings.Contains("\n"+r.stdout, "\nPATH=") {
		c.errorf("a command with Vars sees no PATH, only %q", r.stdout)
	}
}

func execCancelledBefore(c *caseT) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	cancel(errEnough)
	c.wantCancelled(c.execIn(ctx, c.e, c.script("exit 0")), nil)
}

func execParallel(c *caseT) {
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			cmd := c.script(`cat; printf err%s "$1" >&2; exit "$1"`, strconv.Itoa(i))
			cmd.Stdin = strings.NewReader(strings.Repeat(fmt.Sprintf("in%d\n", i), 1000))
			r := c.exec(cmd)
			c.wantExit("one of 50 commands", r, i)
			c.equal("stdout of one of 50 commands", r.stdout, strings.Repeat(fmt.Sprintf("in%d\n", i), 1000))
			c.equal("stderr of one of 50 commands", r.stderr, fmt.Sprintf("err%d", i))
		})
	}
	wg.Wait()
}

func execOnce(c *caseT) {
	for i, text := range []string{"exit 0", "exit 1", "exit 255", "kill -KILL $$", "kill -TERM $$"} {
		for range 5 {
			c.exec(c.script(`echo run >>"$1"; `+text, c.abs(fmt.Sprint("count", i))))
		}
		c.equal(text, c.read(c.name(fmt.Sprint("count", i))), strings.Repeat("run\n", 5))
	}
	slow := c.script(`echo run >>"$1"; sleep 30`, c.abs("timeout"))
	slow.Timeout = time.Second
	c.exec(slow)
	got, err := c.get(c.name("timeout")) // a busy machine may end it before it writes
	if err != nil && !errors.Is(err, fs.ErrNotExist) || got != "run\n" && got != "" {
		c.errorf("a command that timed out ran several times: %q, %v", got, err)
	}
	cmd, m := c.sleepers(1, `echo run >>"$2"; exec sleep "$1"`, c.abs("cancel"))
	c.cancelled(cmd, 1, m)
	c.equal("a command that was cancelled", c.read(c.name("cancel")), "run\n")
}
