package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/controlfile"
	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/internal/pathname"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// GuardOptions are options of StartGuard.
type GuardOptions struct {
	// Dir is the working directory without symlinks; empty means that of Info.
	Dir string
	// TopOnly guards only the working directory itself and its .git, not the directories below, which
	// have to be searched twice.
	TopOnly bool
	// Settings are files from which programs outside take settings, relative to the working directory.
	// Those that commands make or change are disarmed.
	Settings []string
}

// Disarmed is one file that a command made or changed so that git, or a program with
// GuardOptions.Settings, would outside of the environment do what the command chose, and that these
// ignore now.
type Disarmed struct {
	// Name is the file, relative to the working directory, and Reason why git would run programs.
	Name, Reason string
	// Kept is the name of the file with its content; empty if it has none.
	Kept string
	// Err, if not nil, is why the file is still in place.
	Err error
}

func (d Disarmed) String() string {
	switch {
	case d.Err != nil:
		return fmt.Sprintf("%q is dangerous, and could not be removed: %s: %s", d.Name, d.Reason, d.Err)
	case d.Kept == "":
		return fmt.Sprintf("%q is removed: %s", d.Name, d.Reason)
	}
	return fmt.Sprintf("%q is now %q: %s", d.Name, path.Base(d.Kept), d.Reason)
}

// GuardReport is what a Guard found.
type GuardReport struct {
	Disarmed []Disarmed
	// ControlFiles are new and changed files that make other programs than git run commands, such as
	// those of editors and of services for continuous integration. They are left as they are.
	ControlFiles []string
}

// Guard finds what commands do to the working directory of an environment that works in place, so
// that git outside would run their programs: directories that become git directories, and hooks,
// settings and pointers in those that exist. It compares with the state before the commands, and
// disarms: the file that makes git look there gets the suffix .disarmed and a note beside it. A
// repository whose settings are harmless, such as a clone, is left alone. It only uses the
// environment, so what a running command changes right afterwards is found at the next check.
//
// Methods may be called concurrently, before Finish.
type Guard struct {
	e        env.Environment
	dir      string
	topOnly  bool
	settings []string
	// kept is the strength of the protection of the repository by other means, see isKept.
	kept     env.Strength
	recorded chan struct{}
	before   *guardState
	err      error
	// outer are the git directories of the working directory that are elsewhere, as absolute names.
	outer []string

	checking atomic.Bool
	checks   sync.WaitGroup
	disarmed []Disarmed // of the running check, which is the only one
}

// StartGuard starts to record the state of the working directory of e, for which Wait waits. No
// command may run before. The caller calls Finish, which waits too.
func StartGuard(ctx context.Context, e env.Environment, opts GuardOptions) *Guard {
	info := e.Info()
	g := &Guard{
		e: e, dir: cmp.Or(filepath.ToSlash(opts.Dir), info.WorkDir), topOnly: opts.TopOnly,
		settings: opts.Settings,
		kept:     info.Strength(env.KeptHooks), recorded: make(chan struct{}),
	}
	go func() {
		defer close(g.recorded)
		if g.err = g.findOuter(ctx); g.err == nil {
			g.before, g.err = g.scan(ctx, g.topOnly)
		}
	}()
	return g
}

// Wait waits until the state is recorded or ctx ends.
func (g *Guard) Wait(ctx context.Context) {
	select {
	case <-g.recorded:
	case <-ctx.Done():
	}
}

// Check starts a check of the working directory itself and its .git, unless one is running. It does
// not wait. Finish reports the result.
func (g *Guard) Check(ctx context.Context) {
	if !g.checking.CompareAndSwap(false, true) {
		return
	}
	g.checks.Go(func() {
		defer g.checking.Store(false)
		g.Wait(ctx)
		if ctx.Err() != nil || g.err != nil {
			return
		}
		if now, err := g.scan(ctx, true); err == nil { // an error will be that of Finish too
			g.judge(ctx, now)
		}
	})
}

// Finish checks everything after the last command, and returns what all checks have found. An
// error means that a part is not checked.
func (g *Guard) Finish(ctx context.Context) (r GuardReport, err error) {
	g.Wait(ctx)
	g.checks.Wait()
	if err = env.ContextError(ctx); err == nil { // else the state may still be recorded
		err = g.err
	}
	if err == nil {
		var now *guardState
		if now, err = g.scan(ctx, g.topOnly); err == nil {
			g.judge(ctx, now)
			r.ControlFiles = g.before.changedControlFiles(now)
			err = g.before.newlyClosed(now)
		}
	}
	r.Disarmed = g.disarmed
	if err != nil {
		err = fmt.Errorf("look for repositories that commands made: %w", err)
	}
	return r, err
}

// guardState is the state of a working directory. Names are relative to it.
type guardState struct {
	// repositories are the git directories, bare ones included.
	repositories map[string]gitDir
	// pointers are the entries .git that are files or symlinks.
	pointers gitDir
	// settings are the files of GuardOptions.Settings that exist.
	settings gitDir
	// control are the files of package controlfile, with what shows that they have changed.
	control map[string]string
	// closed is what cannot be listed or described.
	closed map[string]closedDir
}

// gitDir are the control files of a git directory, by their names in it.
type gitDir map[string]*controlFile

// controlFile is a file by which git runs programs or finds other directories.
type controlFile struct {
	content string
	// unread means that content only shows whether the file has changed.
	unread bool
	// target is that of a symlink, whose content is that of the target.
	target string
	mode   fs.FileMode
}

// equal reports whether git does the same with both. Only executable hooks run.
func (f *controlFile) equal(other *controlFile) bool {
	return other != nil && f.content == other.content && f.unread == other.unread &&
		f.target == other.target && f.mode&0o111 == other.mode&0o111
}

const (
	// maxControlFile bounds the size of a control file that is read, maxHashed that of one in a git
	// directory that is compared by its content, in bytes.
	maxControlFile, maxHashed = 1 << 20, 64 << 20
	// guardedAtOnce bounds the directories that are read at once.
	guardedAtOnce = 8
)

// findOuter finds the git directories of the working directory that are elsewhere: those of
// a linked working tree or a submodule, and, unless only the top is guarded, of a directory above.
func (g *Guard) findOuter(ctx context.Context) error {
	infos, err := g.lstat(ctx, ".", gitrepo.DirName)
	if err != nil {
		return err
	}
	var dirs *gitrepo.Dirs
	switch git := infos[gitrepo.DirName]; {
	case git != nil && git.IsDir():
	case git != nil:
		dirs, err = gitrepo.Find(ctx, g.e, g.dir)
	case !g.topOnly:
		_, dirs, err = gitrepo.FindAbove(ctx, g.e, g.dir)
	}
	if err != nil || dirs == nil {
		return err
	}
	for _, dir := range []string{dirs.Private, dirs.Common} {
		if rel := g.relative(".", dir); path.IsAbs(rel) || pathname.HasDrive(rel) {
			g.outer = append(g.outer, rel)
		}
	}
	slices.Sort(g.outer)
	g.outer = slices.Compact(g.outer)
	return nil
}

// scan reads the state, or only that of the working directory itself.
func (g *Guard) scan(ctx context.Context, topOnly bool) (*guardState, error) {
	s := &guardState{
		repositories: make(map[string]gitDir), pointers: make(gitDir),
		settings: make(gitDir), control: make(map[string]string),
	}
	// A search does not follow a .git that is a symlink.
	dirs, dotGits := append([]string{".", gitrepo.DirName}, g.outer...), []string{gitrepo.DirName}
	if !topOnly {
		below, pointers, err := g.find(ctx, s)
		if err != nil {
			return nil, err
		}
		dirs, dotGits = append(dirs, below...), append(dotGits, pointers...)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs error
	slots := make(chan struct{}, guardedAtOnce)
	each := func(names []string, read func(name string) (store func(), err error)) {
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				store, err := read(name)
				mu.Lock()
				defer mu.Unlock()
				if errs = cmp.Or(errs, err); store != nil {
					store()
				}
			})
		}
	}
	each(dotGits, func(name string) (func(), error) {
		f, err := g.readPointer(ctx, name)
		if f == nil {
			return nil, err
		}
		return func() { s.pointers[name] = f }, err
	})
	each(slices.Clone(g.settings), func(name string) (func(), error) {
		f, err := g.readPointer(ctx, name)
		if f == nil {
			return nil, err
		}
		return func() { s.settings[name] = f }, err
	})
	wg.Wait()
	if f := s.pointers[gitrepo.DirName]; f != nil && topOnly {
		if to, _ := g.pointsTo(gitrepo.DirName, f); g.isReal(ctx, to) { // a search would find it
			dirs = append(dirs, to)
		}
	}
	each(dirs, func(name string) (func(), error) {
		d, err := g.readGitDir(ctx, name)
		if d == nil {
			return nil, err
		}
		return func() { s.repositories[name] = d }, err
	})
	wg.Wait()
	if f := s.pointers[gitrepo.DirName]; f != nil && g.leadsInside(gitrepo.DirName, f, s) {
		delete(s.repositories, gitrepo.DirName) // it is there by its own name
	}
	return s, errs
}

// controlPattern matches the control files at the top of a directory, and those in them.
func controlPattern() string {
	var names []string
	for _, f := range controlfile.All {
		names = append(names, f.Name, f.Name+"/**")
	}
	return strings.Join(names, ",")
}

// find searches the working directory: it returns the directories that may be git directories, and
// the entries named .git, and stores the control files.
func (g *Guard) find(ctx context.Context, s *guardState) (dirs, dotGits []string, err error) {
	found, control, complete, err := g.glob(ctx)
	if err == nil && !complete {
		opened := false
		if s.closed, opened, err = g.unlock(ctx); opened && err == nil {
			found, control, _, err = g.glob(ctx)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range found {
		switch isDir := e.Mode.IsDir(); {
		case strings.EqualFold(path.Base(e.Name), gitrepo.Head) && !isDir:
			dirs = append(dirs, path.Dir(e.Name))
		case strings.EqualFold(path.Base(e.Name), gitrepo.DirName) && !isDir:
			dotGits = append(dotGits, e.Name)
		case strings.EqualFold(path.Base(e.Name), gitrepo.DirName): // whose HEAD may not be listed
			dirs = append(dirs, e.Name)
		}
	}
	for name, c := range s.closed {
		if c.enterable {
			dirs = append(dirs, name, path.Join(name, gitrepo.DirName))
			dotGits = append(dotGits, path.Join(name, gitrepo.DirName))
		}
	}
	return dirs, dotGits, g.readControl(ctx, s, control)
}

// glob searches for files HEAD and entries .git, and for control files. Complete is false if some
// directories cannot be listed.
func (g *Guard) glob(
	ctx context.Context,
) (found, control []search.Entry, complete bool, err error) {
	// Only the second search can leave out most directories.
	patterns := []string{
		"**/{" + gitrepo.Head + "," + gitrepo.DirName + "}", "{" + controlPattern() + "}",
	}
	entries, errs := make([][]search.Entry, len(patterns)), make([]error, len(patterns))
	var wg sync.WaitGroup
	for i, pattern := range patterns {
		wg.Go(func() {
			entries[i], errs[i] = search.Glob(ctx, g.e, search.GlobOptions{
				Pattern: pattern, NoIgnore: true, AnyType: true,
				IgnoreCase: true, // as some file systems do
			})
		})
	}
	wg.Wait()
	complete = true
	for _, err := range errs {
		var unreadable *search.UnreadableError
		switch {
		case err == nil:
		case errors.As(err, &unreadable), errors.Is(err, fs.ErrPermission): // then nothing can be listed
			complete = false
		default:
			return nil, nil, false, err
		}
	}
	return entries[0], entries[1], complete, nil
}

// readControl stores the control files among entries.
func (g *Guard) readControl(ctx context.Context, s *guardState, entries []search.Entry) error {
	entries = slices.DeleteFunc(entries, func(e search.Entry) bool { return e.Mode.IsDir() })
	for some := range slices.Chunk(entries, env.MaxReadFiles/maxControlFile) {
		names := make([]string, len(some))
		for i, e := range some {
			names[i] = e.Name
		}
		contents, err := env.ReadFiles(ctx, g.e, names, maxControlFile)
		if err != nil {
			return err
		}
		for i, e := range some {
			state := fmt.Sprint(e.Mode, sha256.Sum256(contents[i].Data))
			if contents[i].Err != nil {
				state = fmt.Sprint(e.Mode, e.Size, e.ModTime.UnixNano())
			}
			s.control[e.Name] = state
		}
	}
	return nil
}

// IsControlFile reports whether a name, relative to a working directory, is that of a file that
// makes programs run commands, such as those of git, editors, agents, shells and services for
// continuous integration, or is in a directory of such files.
func IsControlFile(name string) bool { return controlfile.Of(name) }

// changedControlFiles returns the control files that are new or changed.
func (s *guardState) changedControlFiles(now *guardState) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(now.control)) {
		if old, ok := s.control[name]; !ok || old != now.control[name] {
			names = append(names, name)
		}
	}
	return names
}

const hooksName = "hooks"

// hookNames are the hooks that git, and its parts, run.
var hookNames = strings.Fields(`applypatch-msg pre-applypatch post-applypatch pre-commit
	pre-merge-commit prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge
	pre-push pre-receive update proc-receive post-receive post-update reference-transaction
	push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman p4-changelist
	p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change`)

// controlNames are the entries of a git directory that count.
var controlNames = []string{
	gitrepo.Head, gitrepo.CommonDir, gitrepo.Objects, gitrepo.Refs, "config", "config.worktree",
	hooksName,
}

// entries returns the entries of a directory that count; none if it cannot be a git directory.
func (g *Guard) entries(ctx context.Context, dir string) (map[string]fs.FileInfo, error) {
	if path.Base(dir) != gitrepo.DirName { // which may have very many
		infos, err := g.lstat(ctx, dir, gitrepo.Head)
		if err != nil || len(infos) == 0 {
			return nil, err
		}
		return g.lstat(ctx, dir, controlNames...)
	}
	list, err := g.e.ReadDir(ctx, dir)
	if err != nil {
		return g.lstat(ctx, dir, controlNames...)
	}
	same := func(a, b string) bool { return a == b }
	if g.e.Info().OS != "linux" { // file systems may ignore the case of letters
		same = strings.EqualFold
	}
	infos := make(map[string]fs.FileInfo)
	for _, e := range list {
		i := slices.IndexFunc(controlNames, func(name string) bool { return same(name, e.Name()) })
		if i < 0 {
			continue
		}
		if infos[controlNames[i]], err = e.Info(); err != nil {
			return g.lstat(ctx, dir, controlNames...)
		}
	}
	return infos, nil
}

// isKept reports whether other means keep commands from changing the hooks and settings of a git
// directory: a change is one of another program. That is so for those of the working directory that
// were there before. A sandbox keeps some of their submodules too, but not all.
func (g *Guard) isKept(dir string) bool {
	if g.kept == env.Absent || dir != gitrepo.DirName && !slices.Contains(g.outer, dir) {
		return false
	}
	return g.before == nil || g.before.repositories[dir] != nil
}

// readGitDir returns the control files of a git directory; nil if the directory is none.
func (g *Guard) readGitDir(ctx context.Context, dir string) (gitDir, error) {
	infos, err := g.entries(ctx, dir)
	if err != nil || infos[gitrepo.Head] != nil && infos[gitrepo.Head].IsDir() ||
		!gitrepo.IsGitDir(func(name string) bool { return infos[name] != nil }) {
		return nil, err
	}
	if g.isKept(dir) {
		delete(infos, "config")
		delete(infos, hooksName)
	}
	files := make(map[string]fs.FileInfo)
	for _, name := range []string{gitrepo.CommonDir, "config", "config.worktree"} {
		if infos[name] != nil {
			files[name] = infos[name]
		}
	}
	switch hooks := infos[hooksName]; {
	case hooks == nil:
	case hooks.IsDir():
		hooks, err := g.hooks(ctx, path.Join(dir, hooksName))
		if err != nil {
			return nil, err
		}
		for name, info := range hooks {
			files[path.Join(hooksName, name)] = info
		}
	default:
		files[hooksName] = hooks
	}
	return g.readControlFiles(ctx, dir, files)
}

// hooks returns the hooks in a directory.
func (g *Guard) hooks(ctx context.Context, dir string) (map[string]fs.FileInfo, error) {
	entries, err := g.e.ReadDir(ctx, dir)
	infos := make(map[string]fs.FileInfo)
	for _, e := range entries {
		isHook := path.Ext(e.Name()) == "" || path.Ext(e.Name()) == ".exe" // no .sample, no .disarmed
		if err == nil && !e.IsDir() && isHook {
			infos[e.Name()], err = e.Info()
		}
	}
	if err != nil {
		return g.lstat(ctx, dir, hookNames...)
	}
	return infos, nil
}

// readControlFiles reads regular files and symlinks of a git directory.
func (g *Guard) readControlFiles(
	ctx context.Context, dir string, infos map[string]fs.FileInfo,
) (gitDir, error) {
	d := make(gitDir)
	var names, full []string
	for name, info := range infos {
		f := &controlFile{mode: info.Mode()}
		switch info.Mode().Type() {
		case 0:
		case fs.ModeSymlink:
			target, err := g.e.ReadLink(ctx, path.Join(dir, name))
			if fatal := env.FatalError(ctx, err); fatal != nil {
				return nil, fatal
			}
			if f.target = target; isHook(name) && !g.inGitDir(dir, name, target) {
				f.unread = true // the script is content of the working tree, or elsewhere
				d[name] = f
				continue
			}
		default:
			continue // such as the mount over a file that must not appear
		}
		d[name], names, full = f, append(names, name), append(full, path.Join(dir, name))
	}
	if len(names) == 0 {
		return d, nil
	}
	contents, err := env.ReadFiles(ctx, g.e, full, maxControlFile)
	if err != nil {
		return nil, err
	}
	for i, c := range contents {
		f := d[names[i]]
		if f.content = string(c.Data); c.Err != nil {
			f.content, f.unread = g.fingerprint(ctx, full[i], infos[names[i]]), true
		}
	}
	return d, env.ContextError(ctx)
}

// isHook reports whether a name in a git directory is that of a hook, or of all.
func isHook(name string) bool { return name == hooksName || path.Dir(name) == hooksName }

// inGitDir reports whether the target of a symlink in a git directory is in that directory.
func (g *Guard) inGitDir(dir, name, target string) bool {
	to := g.relative(path.Dir(path.Join(dir, name)), target)
	return to == dir || strings.HasPrefix(to, dir+"/") || dir == "." && fs.ValidPath(to)
}

// fingerprint returns what shows that a file has changed that is too large to keep, or that cannot
// be read.
func (g *Guard) fingerprint(ctx context.Context, name string, info fs.FileInfo) string {
	if f, err := g.e.Open(ctx, name); err == nil {
		defer func() { _ = f.Close() }()
		h := sha256.New()
		if n, err := io.Copy(h, io.LimitReader(f, maxHashed)); err == nil && n < maxHashed {
			return string(h.Sum(nil))
		}
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return "" // such as one to a directory, of which the target counts
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
}

// readPointer reads an entry .git that is a file or a symlink; nil if it is none.
func (g *Guard) readPointer(ctx context.Context, name string) (*controlFile, error) {
	base := path.Base(name)
	infos, err := g.lstat(ctx, path.Dir(name), base)
	if err != nil || infos[base] == nil || infos[base].IsDir() {
		return nil, err
	}
	d, err := g.readControlFiles(ctx, path.Dir(name), infos)
	return d[base], err
}
