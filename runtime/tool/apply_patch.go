package tool

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/tool/internal/v4a"
)

// ApplyPatch returns the tool apply_patch, which applies patches in the v4a format. It changes only
// files below the working directory.
func ApplyPatch() Tool {
	return builtin(Tool{
		ToolSpec: spec("apply_patch", `
			"patch": {"type": "string", "description": "The patch, from *** Begin Patch to *** End Patch."}`,
			"patch"),
		NeedsEnv: true,
		Class:    policy.ClassWrite,
		Subjects: subjects(patchedFiles),
		Limit:    Limit{Chars: 10_000, Keep: KeepTail},
		Aliases:  map[string]string{"input": "patch", "patchText": "patch"},
	}, applyPatch)
}

type applyPatchArgs struct {
	Patch string `json:"patch"`
}

// patchedFiles returns the names of the files that a patch changes; none of one that is malformed,
// which does nothing.
func patchedFiles(args applyPatchArgs) (names []string) {
	ops, err := v4a.Parse(args.Patch)
	if err != nil {
		return nil
	}
	for _, op := range ops {
		names = append(names, op.Path)
		if op.MoveTo != "" {
			names = append(names, op.MoveTo)
		}
	}
	return names
}

func applyPatch(ctx context.Context, call *Call, args applyPatchArgs) (Result, error) {
	ops, err := v4a.Parse(args.Patch)
	if err != nil {
		return Result{}, errorf(KindValidation, "parse the patch: %w (nothing was changed)", err)
	}
	p := &patcher{call: call, e: call.Env, root: rootOf(call.Env)}
	// Names are checked before any change, as far as that is possible without the file system.
	for i := range ops {
		if err := p.confine(&ops[i]); err != nil {
			return Result{}, errorf(err.Kind, "nothing was changed: %w", err)
		}
	}
	if g, ok := call.Env.(*writingEnv); ok {
		if err := p.checkRead(ctx, g, ops); err != nil {
			return Result{}, err
		}
		p.e = g.Environment // it gets other names for files behind symlinks
		defer func() { g.reads.Add(ctx, p.e, p.present()) }()
	}
	for i, op := range ops {
		if err := p.apply(ctx, op); err != nil {
			return Result{Changes: p.changes()}, p.failure(classify(ctx, err), ops[i:])
		}
	}
	return Result{Text: p.summary(), Changes: p.changes()}, nil
}

// checkRead returns an error if the patch would change a file that must be read first.
func (p *patcher) checkRead(ctx context.Context, g *writingEnv, ops []v4a.Op) error {
	for _, op := range ops {
		for _, name := range []string{op.Path, op.MoveTo} {
			if name == "" {
				continue
			}
			check := g.reads.check
			if op.Kind == v4a.Delete {
				check = g.reads.checkRemove
			}
			if err := check(ctx, g.Environment, name); err != nil {
				e := classify(ctx, err)
				return errorf(e.Kind, "nothing was changed: %w", e)
			}
		}
	}
	return nil
}

// present returns the names of the files that the patch has written.
func (p *patcher) present() (names []string) {
	for _, f := range p.files {
		if f.now {
			names = append(names, f.name)
		}
	}
	return names
}

// patcher applies the operations of a patch.
type patcher struct {
	call    *Call
	e       env.Environment
	root    root
	files   []*touched
	remarks []string
}

// touched is a file that the patch has changed. before and now report whether it existed before the
// patch and whether it exists now.
type touched struct {
	name        string
	before, now bool
}

// confine makes the names of op relative to the working directory.
func (p *patcher) confine(op *v4a.Op) *Error {
	for _, name := range []*string{&op.Path, &op.MoveTo} {
		if *name == "" {
			continue
		}
		rel, err := p.root.rel(*name)
		if err != nil {
			return err
		}
		*name = rel
	}
	return nil
}

func (p *patcher) apply(ctx context.Context, op v4a.Op) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch op.Kind {
	case v4a.Add:
		return p.add(ctx, op)
	case v4a.Delete:
		return p.remove(ctx, op.Path)
	default:
		return p.update(ctx, op)
	}
}

func (p *patcher) add(ctx context.Context, op v4a.Op) error {
	at, err := p.target(ctx, op.Path)
	if err != nil {
		return err
	}
	content, err := restored(ctx, p.call, at.name, op.Content)
	if err != nil {
		return err
	}
	written, err := p.e.WriteFile(ctx, at.name, strings.NewReader(content), env.WriteOptions{})
	if err != nil {
		return err
	}
	p.wrote(op.Path, written)
	return nil
}

// remove removes the file or symlink name itself.
func (p *patcher) remove(ctx context.Context, name string) error {
	at, err := p.root.resolve(ctx, name, false)
	if err != nil {
		return err
	}
	if at.info == nil {
		return errorf(KindNotFound, "%s does not exist", shown(name))
	}
	if at.info.IsDir() {
		return errorf(KindOther, "%s is a directory; a patch deletes only files", shown(name))
	}
	if err := p.e.Remove(ctx, at.name, env.RemoveOptions{}); err != nil {
		return err
	}
	p.touch(name, true, false)
	return nil
}

func (p *patcher) update(ctx context.Context, op v4a.Op) error {
	from, err := p.file(ctx, op.Path)
	if err != nil {
		return err
	}
	if from.info == nil {
		return errorf(KindNotFound, "%s does not exist", shown(op.Path))
	}
	data, err := env.ReadFile(ctx, p.e, from.name, maxEdited)
	if err != nil {
		return err
	}
	content, matches := string(data), []v4a.Match(nil)
	if len(op.Chunks) > 0 {
		// The model has seen the file without its secrets.
		content, matches, err = v4a.Apply(p.call.Redactor.Text(content), op.Chunks)
		if err != nil {
			return errorf(KindEditConflict, "%w", err)
		}
		if content, err = p.call.restore(content, string(data)); err != nil {
			return err
		}
	}
	to := from
	if op.MoveTo != "" {
		if to, err = p.target(ctx, op.MoveTo); err != nil {
			return err
		}
	}
	if to.name == from.name {
		err = p.rewrite(ctx, op.Path, from, data, content)
	} else {
		err = p.move(ctx, op, from, to, content)
	}
	if err == nil {
		p.remark(op.Path, op.Chunks, matches)
	}
	return err
}

// file returns the location of the file name, which may not exist but is not a directory.
func (p *patcher) file(ctx context.Context, name string) (location, error) {
	at, err := p.root.resolve(ctx, name, true)
	if err == nil && at.info != nil && at.info.IsDir() {
		err = errorf(KindOther, "%s is a directory", shown(name))
	}
	return at, err
}

// target is file for a name that the patch creates.
func (p *patcher) target(ctx context.Context, name string) (location, error) {
	at, err := p.file(ctx, name)
	if err == nil && at.info != nil {
		err = p.root.checkSpelling(ctx, at.name)
	}
	return at, err
}

// rewrite replaces data by content.
func (p *patcher) rewrite(
	ctx context.Context, name string, at location, data []byte, content string,
) error {
	if string(data) == content {
		p.remarks = append(p.remarks, fmt.Sprintf("%s: the patch changes nothing in it", shown(name)))
		return nil
	}
	written, err := p.e.WriteFile(ctx, at.name, strings.NewReader(content),
		env.WriteOptions{IfSHA256: digest(data)})
	if err != nil {
		return err
	}
	p.wrote(name, written)
	return nil
}

// move writes content to the new file, with the mode of the old one, and removes the old one.
func (p *patcher) move(ctx context.Context, op v4a.Op, from, to location, content string) error {
	info, err := p.e.Stat(ctx, from.name)
	if err != nil {
		return err
	}
	written, err := p.e.WriteFile(ctx, to.name, strings.NewReader(content),
		env.WriteOptions{Mode: info.Mode().Perm()})
	if err != nil {
		return err
	}
	p.wrote(op.MoveTo, written)
	if err := p.remove(ctx, op.Path); err != nil {
		e := classify(ctx, err)
		return errorf(e.Kind, "%s was written, but the old file could not be removed: %w",
			shown(op.MoveTo), e)
	}
	return nil
}

func (p *patcher) wrote(name string, w env.Written) {
	p.touch(name, !w.Created, true)
	if w.InPlace {
		p.remarks = append(p.remarks, fmt.Sprintf("%s was%s", shown(name),
			strings.Trim(inPlace(w), "()")))
	}
}

func (p *patcher) touch(name string, before, now bool) {
	for _, t := range p.files {
		if t.name == name {
			t.now = now
			return
		}
	}
	p.files = append(p.files, &touched{name: name, before: before, now: now})
}

// remark names to the model the chunks that did not match exactly.
func (p *patcher) remark(name string, chunks []v4a.Chunk, matches []v4a.Match) {
	for i, m := range matches {
		switch {
		case m.Appended && len(chunks[i].Hints) > 0:
			p.remarks = append(p.remarks, fmt.Sprintf("%s, chunk %d: it has no old lines, so its lines "+
				"were added at the end of the file, not below the @@ line", shown(name), i+1))
		case m.Level > v4a.Exact:
			p.remarks = append(p.remarks, fmt.Sprintf("%s, chunk %d: matched at line %d only %s; unchanged "+
				"lines were kept as they are, and new ones are indented as in the file", shown(name), i+1,
				m.Line, m.Level))
		}
	}
}

func (p *patcher) changes() []event.FileChange {
	var changes []event.FileChange
	for _, t := range p.files {
		kind := event.FileModified
		switch {
		case !t.before && !t.now:
			continue
		case !t.before:
			kind = event.FileCreated
		case !t.now:
			kind = event.FileDeleted
		}
		changes = append(changes, event.FileChange{Path: t.name, Kind: kind})
	}
	return changes
}

// summary has one line for each file, then the remarks.
func (p *patcher) summary() string {
	marks := map[event.ChangeKind]string{
		event.FileCreated: "A", event.FileModified: "M", event.FileDeleted: "D",
	}
	var b strings.Builder
	for _, c := range p.changes() {
		fmt.Fprintf(&b, "%s %s\n", marks[c.Kind], oneLine(c.Path))
	}
	for _, n := range p.remarks {
		fmt.Fprintf(&b, "[%s]\n", n)
	}
	if b.Len() == 0 {
		return "[the patch changes nothing]\n"
	}
	return b.String()
}

// failure reports which operations were applied and which were not. The first of rest failed.
func (p *patcher) failure(cause *Error, rest []v4a.Op) error {
	var b strings.Builder
	fmt.Fprintf(&b, "the patch was not applied completely: %s %s: %s\n", rest[0].Kind,
		shown(rest[0].Path), cause.Message)
	if len(p.files) == 0 && len(p.remarks) == 0 {
		b.WriteString("Nothing was changed.\n")
	} else {
		b.WriteString("Applied before that, and not undone:\n" + p.summary())
	}
	b.WriteString("Not applied:\n")
	for _, op := range rest {
		fmt.Fprintf(&b, "%s %s\n", op.Kind, oneLine(op.Path))
	}
	return &Error{Kind: cause.Kind, Message: b.String(), Err: cause}
}
