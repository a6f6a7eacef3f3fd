package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// judge disarms what has become dangerous since the recorded state.
func (g *Guard) judge(ctx context.Context, now *guardState) {
	for _, dir := range slices.Sorted(maps.Keys(now.repositories)) {
		old, known := g.before.repositories[dir]
		reasons := g.armed(dir, old, now.repositories[dir])
		if !known {
			if dir == "." && len(reasons) == 0 && g.lost(now) {
				reasons[""] = "the repository in .git is none any more"
			}
			if len(reasons) > 0 {
				why := strings.Join(slices.Sorted(maps.Values(reasons)), ", ")
				g.disarm(ctx, path.Join(dir, gitrepo.Head), nil,
					fmt.Sprintf("a command made the directory %q a git repository: %s", dir, why))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(reasons)) {
			var restore *controlFile
			if f, ok := old[name]; ok {
				restore = &f
			}
			g.disarm(ctx, path.Join(dir, name), restore, "a command changed a repository: "+reasons[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.pointers)) {
		f := now.pointers[name]
		old, known := g.before.pointers[name]
		if known && old.equal(f) || g.leadsInside(name, f, now) {
			continue
		}
		var restore *controlFile
		if known {
			restore = &old
		}
		g.disarm(ctx, name, restore, "a command made git take a repository elsewhere for this one")
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
func (g *Guard) leadsInside(name string, f controlFile, now *guardState) bool {
	to, ok := g.pointsTo(name, f)
	return !ok || now.repositories[to] != nil
}

// pointsTo returns where a .git that is a file or a symlink leads, relative to the working
// directory; false if git takes it for no repository.
func (g *Guard) pointsTo(name string, f controlFile) (string, bool) {
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
		before, existed := old[name]
		isHook := name == hooksName || path.Dir(name) == hooksName
		switch {
		case existed && before.equal(f), g.kept == env.Enforced && g.isKept(dir):
		case isHook:
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
		default:
			known := g.armedSettings(dir, before.content)
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

// harmlessSettings are settings with which git runs no programs and takes no other directory,
// beside allowedSettings, by section and key. Two dots stand for a section with a name, and a
// section alone for all of its keys.
var harmlessSettings = map[string]check{
	"advice": line, "color": line, "gc.auto": word, "pull.rebase": word, "pull.ff": word,
	"push.default": word, "push.autosetupremote": boolean, "push.followtags": boolean,
	"rerere.enabled": boolean, "rerere.autoupdate": boolean,
	"core.repositoryformatversion": word, "core.bare": boolean, "core.logallrefupdates": word,
	"core.abbrev": word, "core.untrackedcache": word, "core.fsmonitor": boolean,
	"core.commitgraph": boolean, "core.multipackindex": boolean, "core.longpaths": boolean,
	"core.protectntfs": boolean, "core.protecthfs": boolean,
	"maintenance.auto": boolean, "submodule.active": line, "submodule.recurse": boolean,
	"submodule..update": matching(updatePattern), "submodule..branch": line,
	"submodule..ignore": word, "submodule..url": transport,
	"remote..url": transport, "remote..pushurl": transport, "remote..mirror": boolean,
	"remote..prune": boolean, "branch..description": line, "branch..vscode-merge-base": line,
	"extensions.refstorage": word, "extensions.worktreeconfig": boolean,
	"extensions.relativeworktrees": boolean, "extensions.preciousobjects": boolean,
	"extensions.compatobjectformat": word, "index.version": word, "index.threads": word,
	"lfs.repositoryformatversion": word, "lfs..access": word, "fetch.prune": boolean,
	"init.defaultbranch": word, "uploadpack.allowfilter": boolean,
}

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
		check := harmlessSettings[id]
		if check == nil {
			check = allowedSettings[id]
		}
		if check == nil && s.Subsection == "" {
			check = harmlessSettings[s.Section]
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

// disarm gives a file the suffix .disarmed, with a note beside it, and restores the former one.
func (g *Guard) disarm(ctx context.Context, name string, restore *controlFile, reason string) {
	d := Disarmed{Name: name, Reason: reason}
	kept := ""
	if info, err := g.e.Lstat(ctx, name); err == nil && info.Mode().IsRegular() {
		content, err := env.ReadFile(ctx, g.e, name, maxControlFile)
		for i := 0; err == nil && i < maxKept; i++ {
			if kept = name + ".disarmed"; i > 0 {
				kept = fmt.Sprintf("%s%d", kept, i)
			}
			err = g.create(ctx, kept, content)
			if !errors.Is(err, fs.ErrExist) {
				break
			}
			err = nil
		}
		if err == nil {
			d.Kept = kept
		}
	}
	// The copy may fail where nothing can be made; what matters is that the file goes.
	if d.Err = g.e.Remove(ctx, name, env.RemoveOptions{}); errors.Is(d.Err, fs.ErrPermission) {
		_, _ = g.e.Exec(ctx, env.Command{Argv: []string{"chmod", "u+rwx", "./" + path.Dir(name)}})
		d.Err = g.e.Remove(ctx, name, env.RemoveOptions{})
	}
	if d.Err != nil {
		g.disarmed = append(g.disarmed, d)
		return
	}
	restored := ""
	if restore != nil && restore.target == "" {
		_, d.Err = g.e.WriteFile(ctx, name, strings.NewReader(restore.content),
			env.WriteOptions{Mode: restore.mode.Perm()})
		restored = " The former file is back."
	}
	if d.Kept != "" {
		_ = g.create(ctx, d.Kept+".txt", fmt.Appendf(nil, noteText, path.Base(name), reason, restored,
			path.Base(d.Kept), path.Base(name)))
	}
	g.disarmed = append(g.disarmed, d)
}

// maxKept bounds the names that are tried for a copy.
const maxKept = 100

// noteText is the content of a note, with the file, the reason, and the names to rename.
const noteText = `sandboxagent has renamed %s, so that git does not run programs of a command:
%s.%s
If you want this: mv %s %s
`

// create writes a new file.
func (g *Guard) create(ctx context.Context, name string, content []byte) error {
	_, err := g.e.WriteFile(ctx, name, bytes.NewReader(content), env.WriteOptions{MustNotExist: true})
	return err
}
