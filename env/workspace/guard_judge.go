package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// judge disarms what has become dangerous since the recorded state.
func (g *Guard) judge(ctx context.Context, now *guardState) {
	for _, name := range slices.Sorted(maps.Keys(now.pointers)) {
		old, f := g.before.pointers[name], now.pointers[name]
		if f.equal(old) || g.leadsInside(name, f, now) {
			continue
		}
		g.disarm(ctx, name, old, f.target,
			"a command made git take a repository elsewhere for this one")
		delete(now.repositories, name)
		if old == nil {
			delete(now.pointers, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.settings)) {
		if old, f := g.before.settings[name], now.settings[name]; !f.equal(old) {
			g.disarm(ctx, name, old, f.target, "a command changed settings that you trust")
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(now.repositories)) {
		old, known := g.before.repositories[dir]
		reasons := g.armed(dir, old, now.repositories[dir])
		if known {
			for _, name := range slices.Sorted(maps.Keys(reasons)) {
				g.disarm(ctx, path.Join(dir, name), old[name], now.repositories[dir][name].target,
					"a command changed a repository: "+reasons[name])
			}
			continue
		}
		if dir == "." && len(reasons) == 0 && g.lost(now) {
			reasons[""] = "the repository in .git is none any more"
		}
		if len(reasons) > 0 {
			why := strings.Join(slices.Sorted(maps.Values(reasons)), ", ")
			g.disarm(ctx, path.Join(dir, gitrepo.Head), nil, "",
				fmt.Sprintf("a command made the directory %q a git repository: %s", dir, why))
		}
	}
}

// lost reports whether .git was a repository and is none now.
func (g *Guard) lost(now *guardState) bool {
	_, had := g.before.repositories[gitrepo.DirName]
	_, has := now.repositories[gitrepo.DirName]
	_, had2 := g.before.pointers[gitrepo.DirName]
	_, has2 := now.pointers[gitrepo.DirName]
	return (had || had2) && !has && !has2
}

// leadsInside reports whether a .git that is a file or a symlink leads to a git directory in the
// working directory, which is judged by itself, or nowhere.
func (g *Guard) leadsInside(name string, f *controlFile, now *guardState) bool {
	to, ok := g.pointsTo(name, f)
	return !ok && !f.unread || now.repositories[to] != nil
}

// pointsTo returns where a .git that is a file or a symlink leads, relative to the working
// directory; false if git takes it for no repository.
func (g *Guard) pointsTo(name string, f *controlFile) (string, bool) {
	to, ok := f.target, true
	if f.mode.IsRegular() {
		to, ok = strings.CutPrefix(strings.TrimRight(f.content, "\r\n"), gitrepo.FilePrefix)
	}
	return g.relative(path.Dir(name), to), ok
}

// relative returns a path, which a file in dir contains, relative to the working directory. The
// result is absolute for a path elsewhere.
func (g *Guard) relative(dir, to string) string {
	if !path.IsAbs(to) && !pathname.HasDrive(to) {
		return path.Join(dir, to)
	}
	if to = path.Clean(to); to == g.dir {
		return "."
	}
	return strings.TrimPrefix(to, strings.TrimSuffix(g.dir, "/")+"/")
}

// armed returns why control files of a git directory that are new or changed make git run programs
// or take another directory, by file. Old is nil for a new git directory.
func (g *Guard) armed(dir string, old, now gitDir) map[string]string {
	reasons := make(map[string]string)
	for name, f := range now {
		before := old[name]
		switch {
		case f.equal(before), g.kept == env.Enforced && g.isKept(dir):
		case isHook(name):
			reasons[name] = "the hook " + path.Base(name)
			if name == hooksName {
				reasons[name] = "hooks that are elsewhere"
			}
		case name == gitrepo.CommonDir:
			// A linked working tree has this one.
			if old != nil || strings.TrimSpace(f.content) != "../.." ||
				path.Base(path.Dir(dir)) != "worktrees" {
				reasons[name] = "another common directory"
			}
		case f.unread:
			reasons[name] = "its settings, which cannot be read"
		default:
			var known []string
			if before != nil {
				known = g.armedSettings(dir, before.content)
			}
			added := slices.DeleteFunc(g.armedSettings(dir, f.content), func(s string) bool {
				return slices.Contains(known, s)
			})
			var keys []string
			for _, s := range added {
				key, _, _ := strings.Cut(s, "=")
				keys = append(keys, key)
			}
			if len(keys) > 0 {
				slices.Sort(keys)
				reasons[name] = "its settings " + strings.Join(slices.Compact(keys), ", ")
			}
		}
	}
	return reasons
}

// harmlessSettings returns settings with which git runs no programs but those of the user, and
// takes no other directory, beside allowedSettings, by section and key. Two dots stand for
// a section with a name, and a section alone for all of its keys.
var harmlessSettings = sync.OnceValue(func() map[string]check {
	all := make(map[string]check)
	for _, group := range []struct {
		check check
		names string
	}{
		{boolean, `commit.gpgsign commit.verbose core.bare core.commitgraph core.fsmonitor
			core.longpaths core.multipackindex core.preloadindex core.protecthfs core.protectntfs
			credential..usehttppath diff.indentheuristic diff.mnemonicprefix diff.noprefix
			extensions.preciousobjects extensions.relativeworktrees extensions.worktreeconfig
			feature.experimental feature.manyfiles fetch.prune fetch.prunetags fetch.showforcedupdates
			fetch.writecommitgraph gc.autodetach gc.writecommitgraph gui.gcwarning index.skiphash
			lfs..locksverify lfs.locksverify maintenance..enabled maintenance.auto merge.autostash
			merge.stat pack.usebitmaps pack.usesparse push.autosetupremote push.followtags
			rebase.autosquash rebase.autostash rebase.updaterefs receive.autogc receive.denydeletes
			receive.denynonfastforwards remote..github-pr-remote remote..mirror remote..prune
			remote..prunetags rerere.autoupdate rerere.enabled submodule.recurse
			tag.forcesignannotated tag.gpgsign transfer.fsckobjects uploadpack.allowfilter
			user.useconfigonly`},
		{word, `branch.sort branch..gh-merge-base checkout.defaultremote commit.cleanup core.abbrev
			core.compression core.logallrefupdates core.repositoryformatversion core.sharedrepository
			core.untrackedcache diff.algorithm diff.colormoved diff.renamelimit diff.renames
			extensions.compatobjectformat extensions.refstorage fetch.parallel fetch.recursesubmodules
			gc.auto gc.packrefs gc.pruneexpire gc.reflogexpire gc.reflogexpireunreachable gui.encoding
			http.lowspeedlimit http.lowspeedtime http.postbuffer http.version i18n.commitencoding
			i18n.logoutputencoding index.threads index.version init.defaultbranch lfs..access
			lfs.repositoryformatversion maintenance..auto maintenance..schedule maintenance.strategy
			merge.conflictstyle merge.ff merge.renamelimit merge.renames pack.threads pack.window
			pack.windowmemory protocol.version pull.ff pull.rebase push.default push.recursesubmodules
			receive.denycurrentbranch remote..gh-resolved status submodule..fetchrecursesubmodules
			submodule..ignore submodule.fetchjobs tag.sort`},
		{line, `advice author.email author.name blame.ignorerevsfile branch..description
			branch..github-pr-base-branch branch..github-pr-owner-number branch..gk-last-accessed
			branch..gk-last-modified branch..gk-merge-base branch..gk-merge-target
			branch..vscode-merge-base color committer.email committer.name core.whitespace
			gui.geometry gui.wmstate submodule..branch submodule.active`},
		{transport, `branch..pushremote branch..remote remote..pushurl remote..url
			remote.pushdefault submodule..url`},
		{matching(updatePattern), `submodule..update`},
	} {
		for _, name := range strings.Fields(group.names) {
			all[name] = group.check
		}
	}
	return all
})

// updatePattern matches the ways to update a submodule but a command, which starts with "!".
var updatePattern = lazyregexp.New(`^(checkout|rebase|merge|none)$`)

// transport accepts addresses of remote repositories but those of remote helpers, which are
// programs, and options.
func transport(v string) (string, bool) {
	scheme, _, ok := strings.Cut(v, "://")
	return v, !strings.Contains(v, "::") && !strings.HasPrefix(v, "-") &&
		(!ok || slices.Contains(schemes(), strings.ToLower(scheme)))
}

// armedSettings returns the settings of a configuration that are not known as harmless, as
// "key=value".
func (g *Guard) armedSettings(dir, content string) (armed []string) {
	settings, err := gitrepo.ParseConfig([]byte(content))
	if err != nil {
		return []string{"that cannot be read=" + content}
	}
	for _, s := range settings {
		id, key := s.Section+"."+s.Key, s.Section+"."+s.Key
		if s.Subsection != "" {
			id, key = s.Section+".."+s.Key, s.Section+"."+s.Subsection+"."+s.Key
		}
		check := harmlessSettings()[id]
		if check == nil {
			check = allowedSettings[id]
		}
		if check == nil {
			check = harmlessSettings()[s.Section]
		}
		if id == "core.worktree" {
			check = func(v string) (string, bool) {
				at := g.relative(dir, v)
				return v, fs.ValidPath(at) && !pathname.HasDrive(at)
			}
		}
		if check != nil {
			if _, ok := check(s.Value); ok {
				continue
			}
		}
		armed = append(armed, key+"="+s.Value)
	}
	return armed
}

// disarm gives a file the suffix .disarmed, with a note beside it, and restores the former one, if
// there was one. Target is that of a symlink to disarm.
func (g *Guard) disarm(
	ctx context.Context, name string, former *controlFile, target, reason string,
) {
	d := Disarmed{Name: name, Reason: reason}
	if _, err := g.e.Lstat(ctx, name); errors.Is(err, fs.ErrNotExist) {
		return // it was a file that is disarmed, by another name
	}
	d.Kept, d.Err = g.moveAway(ctx, name)
	restored := ""
	if d.Err == nil && former != nil {
		err := g.restore(ctx, name, former, target)
		if restored = " The former one is back."; err != nil {
			restored = " The former one is not back: " + err.Error() + "."
			d.Reason += "; the former one is not back: " + err.Error()
		}
	}
	if d.Err == nil && d.Kept != "" {
		note := fmt.Sprintf(noteText, path.Base(name), reason, restored, path.Base(d.Kept),
			path.Base(name))
		_, _ = g.e.WriteFile(ctx, d.Kept+".txt", strings.NewReader(note),
			env.WriteOptions{MustNotExist: true})
	}
	g.disarmed = append(g.disarmed, d)
}

// restore makes a file as it was before, in place of a moved symlink to target, if it was one.
func (g *Guard) restore(
	ctx context.Context, name string, former *controlFile, target string,
) error {
	if former.target != "" && former.target != target {
		argv := []string{"ln", "-s", "--", former.target, operand(name)}
		_, err := g.e.Exec(ctx, env.Command{Argv: argv})
		if to, rerr := g.e.ReadLink(ctx, name); rerr != nil || to != former.target {
			return cmp.Or(err, rerr, fs.ErrExist)
		}
		return nil
	}
	mode := former.mode.Perm()
	switch {
	case former.target != "" && path.Base(path.Dir(name)) == hooksName:
		return errors.New("the file that it leads to has changed")
	case former.unread:
		return errors.New("it was too large, or could not be read")
	case former.target != "":
		mode = 0o700 // that of its target is not known
	}
	_, err := g.e.WriteFile(ctx, name, strings.NewReader(former.content),
		env.WriteOptions{Mode: mode, MustNotExist: true})
	return err
}

// moveAway renames a file, or where that fails removes it, and returns its new name, if it has one.
func (g *Guard) moveAway(ctx context.Context, name string) (kept string, err error) {
	for i := 0; err == nil; i++ {
		if kept = name + ".disarmed"; i > 0 {
			kept = fmt.Sprintf("%s%d", kept, i)
		}
		if _, err = g.e.Lstat(ctx, kept); i == maxKept {
			return "", g.e.Remove(ctx, name, env.RemoveOptions{})
		}
	}
	for range 2 {
		// It works for files of every type and size, also for those that cannot be read.
		_, _ = g.e.Exec(ctx, env.Command{Argv: []string{"mv", "--", operand(name), operand(kept)}})
		if _, err = g.e.Lstat(ctx, name); errors.Is(err, fs.ErrNotExist) {
			return kept, nil
		}
		g.allow(ctx, "u+rwx", path.Dir(name))
	}
	f, err := g.e.Open(ctx, name)
	if err == nil {
		_, err = g.e.WriteFile(ctx, kept, f, env.WriteOptions{MustNotExist: true})
		_ = f.Close()
	}
	if err != nil {
		kept = "" // what matters is that the file goes
	}
	return kept, g.e.Remove(ctx, name, env.RemoveOptions{})
}

// operand returns a name that no program takes for an option.
func operand(name string) string {
	if path.IsAbs(name) || pathname.HasDrive(name) {
		return name
	}
	return "./" + name
}

// maxKept bounds the names that are tried for a moved file.
const maxKept = 100

// noteText is the content of a note, with the file, the reason, and the names to rename.
const noteText = `sandboxagent has renamed %s, so that nothing outside does what a command chose:
%s.%s
If you want this: mv %s %s
`
