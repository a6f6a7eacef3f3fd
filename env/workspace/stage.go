package workspace

import "path/filepath"

// stagePrefix begins the name of the folder in the workspace that holds what is new and what was
// taken away while changes are made.
const stagePrefix = ".sandboxagent-apply-"

// Names in the stage. The folders hold files by their names in the workspace.
const (
	addedName   = "added"
	changedName = "changed"
	keptName    = "old"
	readmeName  = "README"
	undoName    = "undo"
)

const readme = `Changes of the folder above this one were being made, and the program was killed before the end. Nothing is lost:

old/      files that were taken away, by name, as they were
changed/  new contents of files that change
added/    files that are new

Run here: sh undo
It takes back what was done and removes this folder. Files that were edited since stay as they are. Without a shell:
remove from the folder the files that are in added/, and move those in old/ back.

What was to be done is in the patch that was kept or asked for.
`

// undo is a shell script that takes back what was done, as far as it was done. A file that was
// added is the same one as that in the stage; if it is another one, somebody else has made it.
const undo = `if [ $# = 0 ]; then
	cd "${0%"${0##*/}"}." || exit
	find added ! -type d -exec sh ./undo {} \;
	find old ! -type d -exec sh ./undo {} \;
	if [ -z "$(find old ! -type d)" ]; then
		stage=$PWD
		cd .. && rm -rf "$stage"
	fi
	exit
fi
name=${1#*/}
to=../$name
case $1 in
added/*)
	if [ -L "$1" ] && [ -L "$to" ] || [ ! -L "$to" ] && [ "$1" -ef "$to" ]; then
		rm -f "$to"
	fi
	;;
old/*)
	if [ -d "$to" ] && [ ! -L "$to" ]; then
		find "$to" -depth -type d -exec rmdir {} \; 2>/dev/null
	fi
	if [ ! -L "$to" ] && [ -e "$to" ] && [ ! "changed/$name" -ef "$to" ]; then
		echo "$name was edited; what it was is in $PWD/$1" >&2
	else
		mkdir -p "${to%/*}" && mv -f "$1" "$to"
	fi
	;;
esac
`

// explain writes what helps somebody who finds the stage after the program was killed.
func (t *transaction) explain() error {
	for _, f := range []struct{ name, content string }{{readmeName, readme}, {undoName, undo}} {
		if err := t.root.WriteFile(filepath.Join(t.stage, f.name), []byte(f.content), 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{addedName, changedName, keptName} {
		if err := t.root.Mkdir(filepath.Join(t.stage, name), 0o777); err != nil {
			return err
		}
	}
	return nil
}

// inStage returns the name of a file in a folder of the stage, and makes the folders on the way to
// it.
func (t *transaction) inStage(folder, name string) (string, error) {
	name = filepath.Join(t.stage, folder, filepath.FromSlash(name))
	return name, t.root.MkdirAll(filepath.Dir(name), 0o777)
}
