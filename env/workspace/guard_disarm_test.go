package workspace_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// guard runs two scripts, and checks the files that the second one has disarmed.
func (g *guarded) guard(
	t *testing.T, e env.Environment, before, script string, want ...string,
) []workspace.Disarmed {
	t.Helper()
	g.run(t, before)
	guard := workspace.StartGuard(t.Context(), e, workspace.GuardOptions{Dir: g.dir})
	guard.Wait(t.Context())
	g.run(t, script)
	guard.Check(t.Context())
	r, err := guard.Finish(t.Context())
	names := make([]string, len(r.Disarmed))
	for i, d := range r.Disarmed {
		names[i] = d.Name
	}
	if err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("%+v, %v; want %q", r, err, want)
	}
	return r.Disarmed
}

// content returns that of a file in the working directory, or the error.
func (g *guarded) content(name string) string {
	content, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// TestGuardHookLink has hooks that are symlinks.
func TestGuardHookLink(t *testing.T) {
	const before = `mkdir scripts .git/hooks; echo "#!/bin/sh" >scripts/hook; chmod +x scripts/hook
		ln -s ../../scripts/hook .git/hooks/pre-commit; ln -s ../shared .git/hooks/pre-push
		cp scripts/hook .git/shared; `
	target := func(g *guarded, name string) string {
		to, err := os.Readlink(filepath.Join(g.dir, name))
		if err != nil {
			return err.Error()
		}
		return to
	}
	t.Run("edit a script", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, before, `echo true >>scripts/hook; rm scripts/hook; echo x >scripts/hook`)
		if to := target(g, ".git/hooks/pre-commit"); to != "../../scripts/hook" {
			t.Error(to)
		}
	})
	t.Run("another target", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, before, `canary >/dev/null; ln -sf ../../run.sh .git/hooks/pre-commit`,
			".git/hooks/pre-commit")
		if g.canaryRuns(t) || target(g, ".git/hooks/pre-commit") != "../../scripts/hook" ||
			target(g, ".git/hooks/pre-commit.disarmed") != "../../run.sh" {
			t.Error("the symlink is not back")
		}
		note := g.content(".git/hooks/pre-commit.disarmed.txt")
		if !strings.Contains(note, "The former one is back") {
			t.Error(note)
		}
	})
	t.Run("in the git directory", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, before, `canary >/dev/null; cp run.sh .git/shared`, ".git/hooks/pre-push")
		if note := g.content(".git/hooks/pre-push.disarmed.txt"); !strings.Contains(note, "not back") {
			t.Error(note)
		}
	})
	t.Run("settings", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, `mv .git/config conf; ln -s ../conf .git/config`, `canary >conf`, ".git/config")
		if g.canaryRuns(t) || !strings.Contains(g.content(".git/config"), "filemode") {
			t.Error(g.content(".git/config"))
		}
	})
}

// TestGuardLargeHook has hooks that are not kept in memory.
func TestGuardLargeHook(t *testing.T) {
	const before = `mkdir .git/hooks; head -c 2000000 /dev/zero >.git/hooks/pre-commit
		chmod +x .git/hooks/pre-commit`
	g := newGuarded(t)
	g.guard(t, g.e, before, `touch -d 2001-01-01 .git/hooks/pre-commit`)

	changed := g.guard(t, g.e, ``, `cd .git/hooks; touch -r pre-commit ../time; printf X |
		dd of=pre-commit conv=notrunc 2>/dev/null; touch -r ../time pre-commit`, ".git/hooks/pre-commit")
	info, err := os.Stat(filepath.Join(g.dir, ".git/hooks/pre-commit.disarmed"))
	if err != nil || info.Size() != 2000000 || info.Mode().Perm()&0o100 == 0 {
		t.Error(info, err)
	}
	if c := g.content(".git/hooks/pre-commit"); !strings.Contains(c, "no such file") {
		t.Errorf("%.100q", c)
	}
	note := g.content(".git/hooks/pre-commit.disarmed.txt")
	if !strings.Contains(note, "not back") || len(changed) > 0 &&
		!strings.Contains(changed[0].String(), "not back") {
		t.Error(changed, note)
	}
}

// noWrite cannot write settings.
type noWrite struct{ env.Environment }

func (e noWrite) WriteFile(
	ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
) (env.Written, error) {
	if strings.HasSuffix(name, "config") {
		return env.Written{}, errors.New("the disk is full")
	}
	return e.Environment.WriteFile(ctx, name, r, opts)
}

// TestGuardNotRestored has no space for the former settings.
func TestGuardNotRestored(t *testing.T) {
	g := newGuarded(t)
	found := g.guard(t, noWrite{g.e}, ``, `canary >.git/config`, ".git/config")
	note := g.content(".git/config.disarmed.txt")
	if strings.Contains(note, "is back") || !strings.Contains(note, "the disk is full") {
		t.Error(note)
	}
	if len(found) == 0 || found[0].Err != nil || !strings.Contains(found[0].String(), "disk is full") {
		t.Errorf("%v", found)
	}
}

// TestGuardInnocent has repositories with hooks and aliases of the user that .git leads to.
func TestGuardInnocent(t *testing.T) {
	const armed = `git config alias.x '!true'; mkdir -p .git/hooks; echo true >.git/hooks/pre-commit
		mv .git real; `
	for name, before := range map[string]string{
		"a symlink": armed + `ln -s real .git`,
		"a pointer": armed + `echo "gitdir: real" >.git`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			g.guard(t, g.e, before, ``)
		})
	}
	t.Run("moved", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, ``, `git init -q --separate-git-dir=real`)
	})
	t.Run("attack", func(t *testing.T) { // which a check without a search finds too
		g := newGuarded(t)
		g.run(t, armed+`echo "gitdir: real" >.git`)
		guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir, TopOnly: true})
		guard.Wait(t.Context())
		g.run(t, `canary >real/config`)
		r, err := guard.Finish(t.Context())
		if err != nil || len(r.Disarmed) != 1 || r.Disarmed[0].Name != "real/config" {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("attack by another symlink", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, `mv .git ../real; ln -s ../real .git; git init -q ../other`,
			`canary >../other/.git/config; ln -sfn ../other/.git .git`, ".git")
		if _, err := os.Stat(filepath.Join(g.dir, "../real/config.disarmed")); err == nil ||
			g.canaryRuns(t) {
			t.Error("the repository is not back")
		}
	})
	t.Run("attack over a symlink", func(t *testing.T) {
		g := newGuarded(t)
		g.guard(t, g.e, ``, `git init -q ../evil; canary >../evil/.git/config; ln -s ../evil link
			rm -rf .git; echo "gitdir: link/.git" >.git`, ".git")
	})
	t.Run("attack by what is left", func(t *testing.T) { // the working directory, without .git
		g := newGuarded(t)
		guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{Dir: g.dir})
		guard.Wait(t.Context())
		g.run(t, `mv .git ../real; ln -s ../real .git; mkdir objects refs
			echo "ref: refs/heads/main" >HEAD`)
		r, err := guard.Finish(t.Context())
		if err != nil || len(r.Disarmed) != 2 || r.Disarmed[1].Name != "HEAD" {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("attack by a new symlink", func(t *testing.T) { // which changes nothing elsewhere
		g := newGuarded(t)
		g.run(t, `git init -q ../other; canary >../other/.git/config`)
		g.guard(t, g.e, `rm run.sh`, `mv .git old; ln -s ../other/.git .git`, ".git")
		if _, err := os.Stat(filepath.Join(g.dir, "../other/.git/config.disarmed")); err == nil {
			t.Error("another repository has changed")
		}
	})
}

// kept promises that its repository is protected.
type kept struct{ env.Environment }

func (e kept) Info() env.Info {
	info := e.Environment.Info()
	info.Guarantees = []env.Guarantee{{Name: env.KeptHooks, Strength: env.BestEffort}}
	return info
}

// TestGuardKept trusts the protection of the repository itself only.
func TestGuardKept(t *testing.T) {
	const init = `git init -q --bare .git/foo; git init -q --bare .git/modules/a`
	for name, tt := range map[string]struct {
		script string
		want   []string
	}{
		"another program": {`git config alias.x '!true'`, nil},
		"behind a pointer": {
			`canary >.git/foo/config; mkdir sub; echo "gitdir: ../.git/foo" >sub/.git`,
			[]string{".git/foo/config"},
		},
		"a submodule": {`canary >.git/modules/a/config`, []string{".git/modules/a/config"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			g.guard(t, kept{g.e}, init, tt.script, tt.want...)
			if g.canaryRuns(t) {
				t.Error("git runs the program")
			}
		})
	}
}

// slow waits for its end, whatever its context does.
type slow struct {
	env.Environment
	end chan struct{}
}

func (e slow) Lstat(context.Context, string) (fs.FileInfo, error) {
	<-e.end
	return nil, fs.ErrClosed
}

// TestGuardRecordingSlowly ends before the state is recorded.
func TestGuardRecordingSlowly(t *testing.T) {
	g := newGuarded(t)
	e := slow{g.e, make(chan struct{})}
	guard := workspace.StartGuard(t.Context(), e, workspace.GuardOptions{Dir: g.dir})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go close(e.end)
	if _, err := guard.Finish(ctx); err == nil {
		t.Error("no error")
	}
	guard.Wait(t.Context())
}

// TestGuardSettings has settings that tools write into repositories, and settings that run programs
// or lead elsewhere.
func TestGuardSettings(t *testing.T) {
	g := newGuarded(t)
	g.guard(t, g.e, ``, `while read -r key value; do git config "$key" "$value"; done <<-END
		core.sharedRepository group
		core.sharedRepository 0660
		receive.denyNonFastForwards true
		commit.gpgSign true
		tag.gpgSign true
		lfs.https://example.com/a/b.git/info/lfs.locksverify true
		remote.origin.gh-resolved base
		remote.fork.gh-resolved owner/name
		http.postBuffer 524288000
		branch.pr.remote https://github.com/owner/name.git
		branch.pr.pushRemote git@github.com:owner/name.git
		branch.pr.remote ../name
		branch.pr.merge refs/pull/1/head
		branch.pr.gh-merge-base main
		branch.pr.vscode-merge-base origin/main
		branch.pr.github-pr-owner-number owner#name#12
		gui.wmstate normal
		gui.geometry 1200x700+10+10 200 300
		core.sparseCheckoutCone true
		index.sparse true
		maintenance.auto false
		maintenance.strategy incremental
		maintenance.gc.enabled false
		color.diff.new bold green
		blame.ignoreRevsFile .git-blame-ignore-revs
		merge.ff only
	END`)
	never := []string{
		"branch.pr.remote ext::sh -c x", "branch.pr.pushremote foo://x", "remote.pushdefault ext::x",
		"remote.origin.url --upload-pack=x", "remote.origin.vcs x", "remote.origin.uploadpack x",
		"remote.origin.receivepack x", "remote.origin.proxy x", "branch.pr.mergeoptions -s x",
		"core.fsmonitor x", "core.hookspath x", "core.sshcommand x", "core.gitproxy x", "core.pager x",
		"core.editor x", "core.askpass x", "core.attributesfile x", "core.excludesfile x",
		"core.worktree /x", "core.alternaterefscommand x", "core.notesref x", "include.path x",
		"includeif.gitdir:/.path x", "url.x.insteadof y", "url.x.pushinsteadof y", "alias.x !x",
		"credential.helper x", "credential.https://x.helper x", "diff.external x", "diff.x.command x",
		"diff.x.textconv x", "diff.tool x", "difftool.x.cmd x", "difftool.x.path x", "merge.x.driver x",
		"merge.tool x", "mergetool.x.cmd x", "filter.x.clean x", "filter.x.smudge x",
		"filter.x.process x", "gpg.program x", "gpg.ssh.program x", "gpg.ssh.defaultkeycommand x",
		"gpg.format x", "sequence.editor x", "pager.log x", "interactive.difffilter x",
		"uploadpack.packobjectshook x", "gc.recentobjectshook x", "init.templatedir x",
		"http.proxy x", "http.sslverify false", "http.https://x.proxy x", "protocol.ext.allow always",
		"protocol.allow always", "pull.twohead x", "pull.octopus x", "sendemail.smtpserver x",
		"sendemail.tocmd x", "submodule.x.update !x", "submodule.x.url ext::x", "man.x.cmd x",
		"browser.x.cmd x", "web.browser x", "guitool.x.cmd x", "instaweb.httpd x", "trailer.x.cmd x",
		"trailer.x.command x", "lfs.url x", "lfs.standalonetransferagent x",
		"lfs.customtransfer.x.path x", "lfs.extension.x.clean x", "imap.tunnel x", "safe.directory x",
		"receive.procreceiverefs x", "ssh.variant x", "fsmonitor.socketdir x", "maintenance.repo x",
		"extensions.x y", "hook.x.command x",
	}
	script := ""
	for _, s := range never {
		key, value, _ := strings.Cut(s, " ")
		script += "git config '" + key + "' '" + value + "'\n"
	}
	found := g.guard(t, g.e, ``, script, ".git/config")
	for _, s := range never {
		key, _, _ := strings.Cut(s, " ")
		if len(found) == 0 || !strings.Contains(found[0].Reason+",", " "+key+",") {
			t.Errorf("%s: %v", s, found)
		}
	}
}

// TestGuardTrusted has a file whose settings a program outside trusts.
func TestGuardTrusted(t *testing.T) {
	for script, want := range map[string]string{
		"echo evil >settings":                    "former",
		"rm settings; ln -s file settings":       "former",
		"echo former >settings; echo x >other":   "former",
		"rm settings":                            "",
		"mv settings s; cp s settings; echo >>s": "former",
	} {
		g := newGuarded(t)
		g.run(t, "echo former >settings")
		guard := workspace.StartGuard(t.Context(), g.e, workspace.GuardOptions{
			Dir: g.dir, TopOnly: true, Settings: []string{"settings", "new"},
		})
		guard.Wait(t.Context())
		g.run(t, script+"; echo new >new")
		guard.Check(t.Context())
		r, err := guard.Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(g.dir, "settings"))
		if got := strings.TrimSpace(string(text)); got != want || err == nil != (want != "") {
			t.Errorf("after %s the settings are %q, %v; %v", script, got, err, r.Disarmed)
		}
		_, err = os.Stat(filepath.Join(g.dir, "new"))
		if err == nil || g.content("new.disarmed") != "new\n" {
			t.Errorf("after %s the new file is still there: %v", script, r.Disarmed)
		}
	}
}
