package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// patchSettings are the values of patchFlags.
type patchSettings struct {
	// file is the file of the patch; may be empty.
	file string
	// apply applies the changes to the working directory of the host.
	apply bool
}

// changes are the changes of a command.
type changes interface {
	WritePatch(ctx context.Context, w io.Writer) (snapshot.PatchStats, error)
	// Unreadable are the names that may have changed but cannot be read.
	Unreadable() []string
	Close() error
}

// patch records the changes of a command to the working directory. A nil patch does nothing.
type patch struct {
	settings patchSettings
	to       destination // if settings name a file
	// tree is the uploaded workspace; nil in an environment that works in place, where before is its
	// first snapshot.
	tree   *workspace.Workspace
	before *snapshot.Snapshot
	// dir is the working directory of an environment that works in place, without symlinks: its name
	// identifies its repository.
	dir string
	// opts are the options of its snapshots.
	opts snapshot.Options
	// stats is the summary of the changes after finish; nil if they are unknown.
	stats *snapshot.PatchStats
	// applying is held while changes are applied on the host.
	applying sync.Locker
	// notify receives lines for the user.
	notify func(string)
}

// startPatch takes a snapshot of the working directory, for valid settings. Without settings the
// patch is nil.
func startPatch(ctx context.Context, settings patchSettings, w *environment) (*patch, error) {
	if settings == (patchSettings{}) {
		return nil, nil
	}
	p := &patch{settings: settings, tree: w.tree, applying: w.applying, notify: w.notify}
	if settings.file != "" {
		file, err := writableFile(settings.file)
		if err != nil {
			return nil, usagef("--patch: %s", err)
		}
		if p.to, err = findDestination(file); err != nil {
			return nil, usagef("--patch: %s", err)
		}
	}
	if p.tree != nil {
		return p, nil
	}
	if err := p.take(ctx, w); err != nil {
		return nil, fmt.Errorf("--patch: %w", err)
	}
	return p, nil
}

// take takes the first snapshot of the working directory of an environment that works in place.
func (p *patch) take(ctx context.Context, w *environment) (err error) {
	if w.remote {
		p.dir, err = resolveWorkDir(ctx, w.plain)
	} else if p.dir, err = filepath.EvalSymlinks(w.plain.Info().WorkDir); err == nil {
		// Without readable rules of git on the host, those in the environment apply.
		p.opts.Exclude, _ = workspace.HostRules(ctx, p.dir)
		p.opts.Omit = ownFiles(p.dir)
		p.dir = filepath.ToSlash(p.dir)
	}
	if err == nil {
		p.before, err = snapshot.Take(ctx, w.plain, p.dir, p.opts)
	}
	return err
}

// ownFiles returns a function that reports the names, relative to a directory of this machine, of
// the program's state; nil if that is elsewhere.
func ownFiles(dir string) func(name string) bool {
	state, err := stateDir()
	if err == nil {
		state, err = filepath.EvalSymlinks(state)
	}
	if err != nil {
		return nil
	}
	own, err := filepath.Rel(dir, state)
	if err != nil || !filepath.IsLocal(own) || own == "." {
		return nil
	}
	return func(name string) bool { return name == filepath.ToSlash(own) }
}

// resolveWorkDir returns the working directory of an environment without symlinks.
func resolveWorkDir(ctx context.Context, e env.Environment) (string, error) {
	info := e.Info()
	if len(info.Shell) == 0 {
		return info.WorkDir, nil
	}
	out, res, err := env.Output(ctx, e, env.Command{Argv: append(info.Shell, "pwd -P")},
		env.OutputOptions{})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("pwd: exit code %d", res.ExitCode)
	}
	dir := strings.TrimSuffix(string(out.Stdout.Bytes()), "\n")
	if err == nil && !path.IsAbs(dir) {
		err = fmt.Errorf("%q is not an absolute working directory", dir)
	}
	return dir, err
}

// errUnreadable means that a patch lacks changes.
var errUnreadable = errors.New("unreadable files")

// finish compares the working directory with its first snapshot, writes the patch, and applies the
// changes on the host if the settings require it and the command is done. It ignores the end of
// ctx, which may have ended the command. It returns the name of the patch.
func (p *patch) finish(ctx context.Context, e env.Environment, done bool) (file string, err error) {
	if p == nil {
		return "", nil
	}
	defer p.close()
	found, err := p.changes(ctx, e, false)
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.flag(), err)
	}
	defer found.Close() //nolint:errcheck // it was only read
	write := func(w io.Writer) error {
		stats, err := found.WritePatch(ctx, w)
		if err == nil {
			p.stats = &stats
		}
		return err
	}
	if p.settings.file != "" {
		if err := p.to.replace(0o666, write); err != nil {
			return "", fmt.Errorf("--patch: %w", err)
		}
		file = p.to.name
	}
	missing := found.Unreadable()
	switch {
	case p.settings.apply:
		return p.apply(ctx, found, file, write, done && len(missing) == 0, missing)
	case len(missing) > 0:
		return file, fmt.Errorf("--patch: %s lacks %w: %s", file, errUnreadable, someNames(missing))
	}
	return file, nil
}

// apply applies the changes on the host if it may. Before that it stores the patch, unless file has
// it, so that no change is lost. It returns the name of the remaining patch.
func (p *patch) apply(
	ctx context.Context, found changes, file string, write func(io.Writer) error, may bool,
	missing []string,
) (string, error) {
	var unread error
	if len(missing) > 0 {
		unread = fmt.Errorf("--apply: nothing is applied because of %w: %s", errUnreadable,
			someNames(missing))
	}
	tree, ok := found.(*workspace.Changes)
	if !ok {
		return file, errors.New("--apply has no effect in an environment that works in place")
	}
	if tree.Empty() {
		p.stats = new(snapshot.PatchStats)
		return file, unread
	}
	kept := ""
	if file == "" {
		var err error
		if kept, err = keepPatch(write); err != nil {
			return "", errors.Join(unread, err)
		}
		file = kept
	}
	err := unread
	if may {
		if err = p.applyKept(ctx, tree, kept); err == nil {
			return p.to.name, nil
		}
		err = fmt.Errorf("--apply: %w", err)
	}
	if err != nil {
		return file, fmt.Errorf("%w; the patch is in %s", err, file)
	}
	return file, nil
}

// applyKept applies the changes on the host and then removes the stored patch kept, which may be
// empty.
func (p *patch) applyKept(ctx context.Context, tree *workspace.Changes, kept string) error {
	p.applying.Lock()
	defer p.applying.Unlock()
	_, err := tree.Apply(ctx)
	if err == nil && kept != "" {
		_ = os.Remove(kept) // one patch too many does no harm
	}
	return err
}

// someNames lists names, but not too many.
func someNames(names []string) string {
	const most = 10
	list := allNames(names[:min(len(names), most)])
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	return list
}

// allNames lists names.
func allNames(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, strconv.Quote(name))
	}
	return strings.Join(list, ", ")
}

// changes compares the working directory with its first snapshot. TrustTimes is for a record of
// work that goes on: see snapshot.Options.
func (p *patch) changes(
	ctx context.Context, e env.Environment, trustTimes bool,
) (changes, error) {
	ctx, e, stop := watch(ctx, e)
	defer stop()
	if p.tree != nil {
		found, err := p.tree.Changes(ctx, e)
		if err != nil {
			return nil, err
		}
		for _, line := range found.Warnings() {
			p.notify(line)
		}
		return found, nil
	}
	opts := p.opts
	opts.Base, opts.TrustTimes = p.before, trustTimes
	after, err := snapshot.Take(ctx, e, p.dir, opts)
	if err != nil {
		return nil, err
	}
	return &difference{before: p.before, after: after}, nil
}

// flag returns the flag for errors.
func (p *patch) flag() string {
	if p.settings.file == "" {
		return "--apply"
	}
	return "--patch"
}

// difference are the changes between two snapshots.
type difference struct{ before, after *snapshot.Snapshot }

func (d *difference) WritePatch(ctx context.Context, w io.Writer) (snapshot.PatchStats, error) {
	return snapshot.WritePatch(ctx, w, d.before, d.after)
}

func (d *difference) Unreadable() []string {
	before := make(map[string]bool)
	for _, name := range d.before.Unreadable() {
		before[name] = true
	}
	return slices.DeleteFunc(d.after.Unreadable(), func(name string) bool {
		for ; name != "."; name = path.Dir(name) {
			if before[name] {
				return true
			}
		}
		return false
	})
}

func (d *difference) Close() error { return d.after.Close() }

func (p *patch) close() {
	if p != nil && p.before != nil {
		_ = p.before.Close() // it was only read
	}
}

// keepPatch writes a patch without a file name to the state directory, or else to that for
// temporary files.
func keepPatch(write func(io.Writer) error) (string, error) {
	dir, err := stateDir()
	if err == nil && dir != "" {
		dir = filepath.Join(dir, "patches")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = ""
	}
	f, err := os.CreateTemp(dir, time.Now().Format("20060102-150405-*.patch"))
	if err != nil {
		return "", fmt.Errorf("store the patch: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		_ = os.Remove(f.Name()) // the first error counts
		return "", fmt.Errorf("store the patch: %w", err)
	}
	return f.Name(), nil
}
