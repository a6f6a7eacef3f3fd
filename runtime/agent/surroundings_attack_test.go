package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// armed are settings of a repository that name a program, whose path replaces PROGRAM. %s is the
// name of a filter.
var armed = []string{
	"filter.%s.clean=PROGRAM", "filter.%s.smudge=PROGRAM", "filter.%s.process=PROGRAM",
	"filter.%s.required=true", "diff.%s.textconv=PROGRAM", "diff.%s.command=PROGRAM",
	"merge.%s.driver=PROGRAM", "core.fsmonitor=PROGRAM", "core.hooksPath=HOOKS", "core.pager=PROGRAM",
	"pager.status=PROGRAM", "pager.log=PROGRAM", "pager.config=PROGRAM", "diff.external=PROGRAM",
	"interactive.diffFilter=PROGRAM", "gpg.program=PROGRAM", "gpg.ssh.program=PROGRAM",
	"log.showSignature=true", "core.sshCommand=PROGRAM", "core.askPass=PROGRAM", "core.editor=PROGRAM",
	"sequence.editor=PROGRAM", "core.gitProxy=PROGRAM", "core.alternateRefsCommand=PROGRAM",
	"credential.helper=PROGRAM", "alias.status=!PROGRAM", "alias.log=!PROGRAM",
	"remote.origin.url=/", "remote.origin.uploadpack=PROGRAM", "remote.origin.promisor=true",
	"remote.origin.partialclonefilter=blob:none", "extensions.partialClone=origin",
	"protocol.ext.allow=always", "status.submoduleSummary=true", "diff.submodule=log",
	"diff.ignoreSubmodules=none", "submodule.recurse=true", "submodule.sub.ignore=none",
}

// arm makes every setting of a repository name a program that writes to the file canary.
func arm(t *testing.T, work, filter, canary string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\necho \"" + filter + " $*\" >>'" + canary + "'\ncat\n"
	names := []string{"program"}
	for _, hook := range []string{
		"post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-auto-gc",
	} {
		names = append(names, "hooks/"+hook)
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		write(t, name, script)
		if err := os.Chmod(name, 0o700); err != nil { //nolint:gosec // git must be able to run it
			t.Fatal(err)
		}
	}
	replace := strings.NewReplacer("%s", filter, "PROGRAM", program,
		"HOOKS", filepath.Join(dir, "hooks"))
	for _, s := range armed {
		name, value, _ := strings.Cut(replace.Replace(s), "=")
		git(t, work, "config", name, value)
	}
	included := filepath.Join(dir, "included")
	write(t, included, replace.Replace("[filter \"%s2\"]\n\tclean = PROGRAM\n"))
	git(t, work, "config", "include.path", included)
}

// armedRepository makes a repository with a submodule, both armed, with changed files in both and a
// missing commit in the history.
func armedRepository(t *testing.T, canary string) string {
	t.Helper()
	dir := t.TempDir()
	inner, outer := filepath.Join(dir, "inner"), filepath.Join(dir, "outer")
	for i, repo := range []string{inner, outer} {
		filter := []string{"in", "out"}[i]
		git(t, dir, "init", "-q", "-b", "trunk", repo)
		write(t, filepath.Join(repo, ".gitattributes"),
			strings.ReplaceAll("* filter=F diff=F merge=F\n*.2 filter=F2\n", "F", filter))
		write(t, filepath.Join(repo, "a.txt"), "a\n")
		write(t, filepath.Join(repo, "b.2"), "b\n")
		git(t, repo, "add", ".")
		git(t, repo, "commit", "-q", "-m", "first")
	}
	git(t, outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "sub")
	git(t, outer, "commit", "-q", "-m", "second")
	git(t, outer, "commit", "-q", "--allow-empty", "-m", "third")
	arm(t, filepath.Join(outer, "sub"), "in", canary)
	lost, err := exec.CommandContext(t.Context(), "git", "-C", outer, "rev-parse", "HEAD~2").Output()
	if err != nil {
		t.Fatal(err)
	}
	arm(t, outer, "out", canary)
	id := strings.TrimSpace(string(lost))
	for _, name := range []string{
		filepath.Join(outer, ".git", "objects", id[:2], id[2:]),
		canary,
	} {
		if err := os.Remove(name); err != nil && name != canary {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.txt", "b.2", "sub/a.txt", "sub/b.2"} {
		write(t, filepath.Join(outer, name), "changed\n")
	}
	return outer
}

// No program that a repository or its submodules name runs while the agent looks at them.
func TestSurroundingsRunNoProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	canary := filepath.Join(t.TempDir(), "canary")
	dir := armedRepository(t, canary)
	m := &model{}
	submit(t, newSession(t, configIn(t, dir, m)), "go")
	if ran, err := os.ReadFile(canary); err == nil {
		t.Errorf("programs of the repository ran: %s", ran)
	}
	for _, want := range []string{"Git branch: trunk", "Modified files: 2"} {
		if !strings.Contains(m.request(t, 0).System, want) {
			t.Errorf("the system prompt lacks %q:\n%s", want, m.request(t, 0).System)
		}
	}
}

// Instructions are regular files in the project.
func TestDocsOutsideOfTheProject(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a privilege on Windows")
	}
	link := func(name, target string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			name := filepath.Join(dir, name)
			write(t, filepath.Join(filepath.Dir(name), ".keep"), "")
			if err := os.Symlink(strings.ReplaceAll(target, "DIR", dir), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, name), content)
		}
	}
	const secret, good = "THE-SECRET", "the good rules"
	outside := file("../outside/AGENTS.md", secret)
	for _, tt := range []struct {
		name string
		make []func(t *testing.T, dir string)
		// read reports that the instructions are read; skipped is in the warning, which is expected if
		// it is not empty.
		read    bool
		skipped string
	}{
		{"regular", []func(*testing.T, string){file("AGENTS.md", good)}, true, ""},
		{"symlink", []func(*testing.T, string){
			file("AGENTS.md", good), link("CLAUDE.md", "AGENTS.md"),
		}, true, ""},
		{"symlink down and up", []func(*testing.T, string){
			file("docs/deep/rules.md", good), link("docs/l", "deep/../deep/rules.md"),
			link("AGENTS.md", "./docs/deep/../l"),
		}, true, ""},
		{"symlink by absolute name", []func(*testing.T, string){
			file("x.md", good), link("AGENTS.md", "DIR/x.md"),
		}, true, ""},
		{"symlinked directory", []func(*testing.T, string){
			file("other/instructions.md", good), link(".codex", "other"),
		}, true, ""},
		{"outside", []func(*testing.T, string){
			outside, link("AGENTS.md", "../outside/AGENTS.md"),
		}, false, "AGENTS.md"},
		{"outside by absolute name", []func(*testing.T, string){
			outside, link("AGENTS.md", "DIR/../outside/AGENTS.md"),
		}, false, "AGENTS.md"},
		{"of the system", []func(*testing.T, string){
			link("AGENTS.md", "/etc/passwd"),
		}, false, "AGENTS.md"},
		{"outside behind another symlink", []func(*testing.T, string){
			outside, link("l", "../outside"), link("AGENTS.md", "l/AGENTS.md"),
		}, false, "AGENTS.md"},
		{"outside behind a symlinked directory", []func(*testing.T, string){
			file("../outside/instructions.md", secret), link(".codex", "../outside"),
		}, false, ".codex/instructions.md"},
		{"into git's directory", []func(*testing.T, string){
			file(".git/config", secret), link("AGENTS.md", ".git/config"),
		}, false, "AGENTS.md"},
		{"dangling", []func(*testing.T, string){link("AGENTS.md", "missing")}, false, "AGENTS.md"},
		{
			"loop",
			[]func(*testing.T, string){link("AGENTS.md", "CLAUDE.md"), link("CLAUDE.md", "AGENTS.md")},
			false, "AGENTS.md",
		},
		{"device", []func(*testing.T, string){link("AGENTS.md", "/dev/zero")}, false, "AGENTS.md"},
		{"directory", []func(*testing.T, string){file("AGENTS.md/x", secret)}, false, "AGENTS.md"},
		{"FIFO", []func(*testing.T, string){func(t *testing.T, dir string) {
			if out, err := exec.CommandContext(t.Context(), "mkfifo",
				filepath.Join(dir, "AGENTS.md")).CombinedOutput(); err != nil {
				t.Skipf("mkfifo: %v %s", err, out)
			}
		}}, false, "AGENTS.md"},
		{"working tree elsewhere", []func(*testing.T, string){outside, func(t *testing.T, dir string) {
			git(t, dir, "init", "-q")
			git(t, dir, "config", "core.worktree", filepath.Join(dir, "../outside"))
		}}, false, ""},
		{"working tree above", []func(*testing.T, string){
			file("../AGENTS.md", secret),
			func(t *testing.T, dir string) {
				git(t, dir, "init", "-q")
				git(t, dir, "config", "core.worktree", "../..")
			},
		}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(root, "dir")
			write(t, filepath.Join(dir, "x"), "")
			for _, f := range tt.make {
				f(t, dir)
			}
			m := &model{}
			cfg := configIn(t, dir, m)
			cfg.Profile.ProjectDocs = []string{"AGENTS.md", "CLAUDE.md", ".codex/instructions.md"}
			ev := watch(&cfg)
			submit(t, newSession(t, cfg), "go")
			system := m.request(t, 0).System
			if strings.Contains(system, good) != tt.read {
				t.Errorf("the instructions were read: %v", !tt.read)
			}
			if strings.Contains(system, secret) || strings.Contains(system, "root:") {
				t.Errorf("the system prompt has a file that is no file of the project:\n%s", system)
			}
			warned := slices.ContainsFunc(ev.all, func(e event.Event) bool {
				w, ok := e.Data.(event.Warning)
				return ok && strings.Contains(w.Message, tt.skipped+" ") && !strings.Contains(w.Message, "\n")
			})
			if warned != (tt.skipped != "") {
				t.Errorf("a warning about %q: %v", tt.skipped, warned)
			}
		})
	}
}
