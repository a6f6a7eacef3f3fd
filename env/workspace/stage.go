package workspace

import "path/filepath"

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
