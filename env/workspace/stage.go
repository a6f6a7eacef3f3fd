package workspace

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// stagePrefix starts the name of the directory in the workspace in which Apply prepares new files
// and keeps removed ones.
const stagePrefix = ".sandboxagent-apply-"

// Names in the stage. The directories hold files by their names in the workspace.
const (
	addedName   = "added"
	changedName = "changed"
	removedName = "old"
	readmeName  = "README"
)

const readme = "The program was killed while it changed the files of the directory above. " +
	`Nothing is lost:

old/      the former content of files that were changed or removed
changed/  the new content of files that change
added/    files that are new

To undo the changes, remove from the directory above the files that are in added/, and move those in
old/ back. To finish them, apply the patch that was written or kept. Then remove this directory.
`

// recordsDir is the directory in Options.StateDir with a record of each stage, by its name. A stage
// counts as one of this user only if a record has its path: a directory of that name may come from
// anybody, with steps of its author's choice in its README.
const recordsDir = "stages"

// record returns the content of the record of a stage.
func record(stage string) string { return stage + "\n\n" + readme }

// records returns the directory with the records, made if makeDir is true; empty if none can be
// used. One in the workspace is content of the workspace.
func (w *Workspace) records(makeDir bool) string {
	if w.opts.StateDir == "" {
		return ""
	}
	dir, err := filepath.Abs(filepath.Join(w.opts.StateDir, recordsDir))
	if err == nil && makeDir && !gitrepo.Contains(w.dir, dir) {
		err = os.MkdirAll(dir, 0o700)
	}
	real := dir
	if err == nil {
		real, err = filepath.EvalSymlinks(dir)
	}
	if err != nil || gitrepo.Contains(w.dir, real) {
		return ""
	}
	return dir
}

// recordOf returns the path of the record of the stage name in the workspace; empty if it has none.
func (w *Workspace) recordOf(name string) string {
	dir := w.records(false)
	if dir == "" {
		return ""
	}
	file := filepath.Join(dir, name)
	content, err := os.ReadFile(file)
	if err != nil || string(content) != record(filepath.Join(w.dir, name)) {
		return ""
	}
	return file
}

// writeRecord records the stage, and removes the records of stages that no longer exist. Errors do
// not matter: without a record, a later run only says less about the stage.
func (t *transaction) writeRecord() {
	if t.records == "" {
		return
	}
	files, _ := filepath.Glob(filepath.Join(t.records, stagePrefix+"*"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		stage, ok := strings.CutSuffix(string(content), record(""))
		if _, lerr := os.Lstat(stage); err == nil && ok && os.IsNotExist(lerr) {
			_ = os.Remove(file)
		}
	}
	t.recordFile = filepath.Join(t.records, t.stage)
	_ = os.WriteFile(t.recordFile, []byte(record(filepath.Join(t.root.Name(), t.stage))), 0o600)
}

// removeStage removes the stage and its record.
func (t *transaction) removeStage() error {
	err := t.root.RemoveAll(t.stage)
	if err == nil && t.recordFile != "" {
		_ = os.Remove(t.recordFile)
	}
	return err
}

// makeStage makes the directories of the stage, and the README for a user who finds it after the
// program was killed.
func (t *transaction) makeStage() error {
	if err := t.root.WriteFile(filepath.Join(t.stage, readmeName), []byte(readme), 0o600); err != nil {
		return err
	}
	for _, name := range []string{addedName, changedName, removedName} {
		if err := t.root.Mkdir(filepath.Join(t.stage, name), 0o777); err != nil {
			return err
		}
	}
	return nil
}

// stagePath returns the path of a file in a directory of the stage, and makes its parents.
func (t *transaction) stagePath(dir, name string) (string, error) {
	name = filepath.Join(t.stage, dir, filepath.FromSlash(name))
	return name, t.root.MkdirAll(filepath.Dir(name), 0o777)
}
