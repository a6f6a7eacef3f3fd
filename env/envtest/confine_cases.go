package envtest

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

func confineCases() []testCase {
	return []testCase{
		{name: "confine_writes", rule: ruleConfine, run: confineWrites},
		{name: "confine_zero", rule: ruleConfine, run: confineZero},
		{name: "confine_hide", rule: ruleConfine, run: confineHide},
		{name: "confine_terminal", rule: ruleConfine, run: confineTerminal},
		{name: "confine_temp", rule: ruleConfineTemp, run: confineTemp},
		{name: "confine_missing", rule: ruleStart, run: confineMissing},
	}
}

// confines ends the case in an environment that cannot confine commands, and must refuse to run
// them then.
func (c *caseT) confines() {
	if c.e.Info().Strength(env.ConfinedCommands) != env.Absent {
		return
	}
	cmd := c.script(`echo run >"$1"`, c.abs("run"))
	cmd.Confine = &env.Confinement{Write: []string{c.dir}}
	r := c.exec(cmd)
	c.is("a command that cannot be confined", r.err, errors.ErrUnsupported)
	var start *env.StartError
	if !errors.As(r.err, &start) {
		c.errorf("a command that cannot be confined: error %v, want a *StartError", r.err)
	}
	if _, err := c.get(c.name("run")); err == nil {
		c.errorf("a command that cannot be confined has run")
	}
	c.pointless("commands cannot be confined")
}

// attempts is a script that makes changes in $1, of which it prints the successful ones. $1 has a
// file "old".
const attempts = `cd /
try() { name=$1; shift; "$@" >/dev/null 2>&1 && echo "$name"; }
try change sh -c 'echo bad >"$0/old"' "$1"
try append sh -c 'echo bad >>"$0/old"' "$1"
try create sh -c 'echo bad >"$0/new"' "$1"
try mkdir mkdir "$1/directory"
try symlink ln -s old "$1/symlink"
try link ln "$1/old" "$1/link"
try rename mv "$1/old" "$1/renamed"
try remove rm -f "$1/old"
try move mv "$1/old" "$TMPDIR/old"
try outlink ln "$1/old" "$TMPDIR/link"
command -v setsid >/dev/null && try setsid setsid sh -c 'echo bad >"$0/setsid"' "$1"
(try child sh -c 'sh -c "echo bad >\"$1/child\""' sh "$1")
:`

func confineWrites(c *caseT) {
	c.unix()
	c.confines()
	c.write(c.name("in", "old"), "old")
	c.write(c.name("out", "old"), "old")
	confine := &env.Confinement{Write: []string{c.name("in")}}
	cmd := c.script(attempts, c.abs("out"))
	cmd.Confine = confine
	r := c.exec(cmd)
	c.wantExit("changes outside of Write", r, 0)
	c.equal("changes outside of Write that were made", r.stdout, "")
	c.wantFile("a file outside of Write", c.name("out", "old"), "old")
	entries, err := c.e.ReadDir(c.ctx, c.name("out"))
	if err != nil || len(entries) != 1 {
		c.errorf("a directory outside of Write has %d entries, error %v; want 1", len(entries), err)
	}
	cmd = c.script(attempts, c.abs("in"))
	cmd.Confine = confine
	if r = c.exec(cmd); !strings.HasPrefix(r.stdout, "change\nappend\ncreate\nmkdir\n") {
		c.errorf("changes in Write that were made: %q, stderr %q, error %v", r.stdout, r.stderr, r.err)
	}
	cmd = c.script(`cat "$1" && cat "$2"`, c.abs("in", "new"), c.abs("out", "old"))
	cmd.Confine = confine
	c.equal("files that a command without Hide reads", c.exec(cmd).stdout, "bad\nold")
	c.sh(`echo new >old`)
	c.wantFile("a command without Confine", c.name("old"), "new\n")
}

func confineZero(c *caseT) {
	c.unix()
	c.confines()
	c.write(c.name("old"), "old")
	cmd := c.script(attempts, c.abs())
	cmd.Confine = &env.Confinement{}
	r := c.exec(cmd)
	c.wantExit("changes without Write", r, 0)
	c.equal("changes without Write that were made", r.stdout, "")
	c.wantFile("a file without Write", c.name("old"), "old")
	cmd = c.script(`echo out; cat; echo err >&2; echo null >/dev/null`)
	cmd.Confine, cmd.Stdin = &env.Confinement{}, strings.NewReader("in\n")
	r = c.exec(cmd)
	c.wantExit("a confined command", r, 0)
	c.equal("stdout of a confined command", r.stdout, "out\nin\n")
	c.equal("stderr of a confined command", r.stderr, "err\n")
}

func confineHide(c *caseT) {
	c.unix()
	c.confines()
	for _, dir := range []string{"hidden", "read", "write"} {
		c.write(c.name(dir, "old"), dir)
	}
	confine := &env.Confinement{
		Hide: c.dir, Read: []string{c.name("read")}, Write: []string{c.name("write")},
	}
	cmd := c.script(`for d in hidden read write; do cat "$d/old"; ls "$d" | tr -d '\n'; done; ls
		cat <hidden/old`)
	cmd.Dir, cmd.Confine = c.dir, confine
	c.equal("what a command reads in Hide", c.exec(cmd).stdout, "readoldwriteold")
	cmd = c.script(`ln -s hidden/old "$TMPDIR/symlink" && ! mv "$TMPDIR/symlink" write`)
	cmd.Dir, cmd.Confine = c.dir, confine
	c.wantExit("moving a symlink into Write", c.exec(cmd), 0)
	for dir, want := range map[string]string{"hidden": "", "read": "", "write": "change\n"} {
		cmd = c.script(attempts, c.abs(dir))
		cmd.Confine = confine
		r := c.exec(cmd)
		if c.wantExit("changes in Hide", r, 0); want == "" {
			c.equal("changes in "+dir, r.stdout, "")
		} else if !strings.HasPrefix(r.stdout, want) || strings.Contains(r.stdout, "symlink") {
			c.errorf("changes in %s: %q, want at least %q, and no symlink", dir, r.stdout, want)
		}
	}
}

func confineTerminal(c *caseT) {
	c.unix()
	c.confines()
	c.write(c.name("old"), "old")
	cmd := c.script(`test -t 0 && echo terminal; ` + attempts)
	cmd.Argv = append(cmd.Argv, c.abs())
	cmd.Confine, cmd.TTY = &env.Confinement{}, &env.TTY{}
	r := c.exec(cmd)
	if errors.Is(r.err, errors.ErrUnsupported) {
		c.pointless("no terminals")
	}
	c.wantExit("a confined command on a terminal", r, 0)
	c.equal("a confined command on a terminal", r.stdout, "terminal\r\n")
	c.wantFile("a file without Write", c.name("old"), "old")
}

func confineTemp(c *caseT) {
	c.unix()
	c.confines()
	run := func(confine env.Confinement, script string, vars ...string) string {
		cmd := c.script(script)
		cmd.Confine, cmd.Vars = &confine, vars
		r := c.exec(cmd)
		c.wantExit("a confined command", r, 0)
		return r.stdout
	}
	one := env.Confinement{}
	two := env.Confinement{Write: []string{c.dir}}
	dir := run(one, `echo temporary >"$TMPDIR/file"; printf %s "$TMPDIR"`)
	c.equal("a file of an earlier command", run(one, `cat "$TMPDIR/file" && rm "$TMPDIR/file"`),
		"temporary\n")
	if dir == "" || run(two, `printf %s "$TMPDIR"`) == dir {
		c.errorf("commands with different confinements have the same directory %q", dir)
	}
	c.equal("TMPDIR of the command", run(one, `printf %s "$TMPDIR"`, "TMPDIR=/"), "/")
}

func confineMissing(c *caseT) {
	c.unix()
	c.confines()
	for what, confine := range map[string]env.Confinement{
		"Write": {Write: []string{c.name("missing")}},
		"Read":  {Hide: c.dir, Read: []string{c.name("missing")}},
	} {
		cmd := c.script("exit 0")
		cmd.Confine = &confine
		r := c.exec(cmd)
		c.is("a missing directory in "+what, r.err, fs.ErrNotExist)
		var start *env.StartError
		if !errors.As(r.err, &start) {
			c.errorf("a missing directory in %s: error %v, want a *StartError", what, r.err)
		}
	}
}
