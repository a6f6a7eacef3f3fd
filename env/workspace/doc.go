// Package workspace copies a directory of the host into an environment, and brings back the changes
// made in it, as a patch or directly.
//
// [Open] records the directory: the files that git tracks and those that it does not ignore.
// [Workspace.Upload] sends the recorded files, so that later changes on the host have no effect.
// [Workspace.Changes] compares the content of the environment with the record, whatever commands
// did with git; [Changes.WritePatch] writes the difference for git apply, and [Changes.Apply] makes
// it in the directory of the host.
//
// # Git
//
// A directory that is the top of a git repository is uploaded with a .git made for the purpose, and
// so are repositories in it, such as submodules. That .git holds references, objects, the index,
// and settings from a list of harmless ones. Credentials, addresses with user names, headers,
// included files, hooks, programs of any kind, and logs stay on the host. Commits made in the
// environment stay in it; no part of a .git is ever brought back.
//
// Other directories of version control systems stay on the host: bare and separate git directories,
// recognized by their content, and those of other systems, recognized by their names. Changes never
// contain files in them, nor files that would make a directory of the host a git directory.
//
// The uploaded .git is always a complete directory, even if it is a linked working tree or a
// submodule on the host. [Workspace.Warnings] reports where git can do less in the environment than
// on the host; a repository that cannot be uploaded at all is an error with the remedy.
//
// A directory inside a repository is uploaded without a .git; its patch has names that git apply
// understands on the host.
//
// Git directories are read without running git, which the host may lack, and which would run
// programs that the settings name.
//
// # Trust
//
// The content of the directory may come from anybody, its .git too. A git directory elsewhere
// counts only if it refers back to the directory, as those of linked working trees and submodules
// do, and objects are borrowed only from stores in the directory or in its git directory. Else the
// directory is uploaded without a .git, with a warning that has the remedy. Repositories inside it
// may refer only to themselves and to git's directory for submodules.
//
// The environment is not trusted. The size of changes is bounded. Apply touches nothing outside the
// directory, no directory of a version control system in it, and no file that differs from the
// uploaded one. The kernel keeps names inside the directory, by os.Root.
package workspace
