// Package workspace brings a folder of the host into an environment and the changes that were made
// there back.
//
// [Open] records the folder: the files that git tracks and those that it does not ignore.
// [Workspace.Upload] sends what was recorded, so that nothing that happens on the host afterwards
// comes between. [Workspace.Changes] compares what the environment holds later with the record, by
// content, whatever was done with git there; [Changes.WritePatch] writes the difference for git
// apply, and [Changes.Apply] makes it in the folder of the host.
//
// # Git
//
// A folder that is the top of a git repository goes along with a .git that is made for the purpose,
// and so do repositories in it, such as submodules. It holds what git needs to work with the
// history: references, objects, the index, and settings from a list of harmless ones. Credentials,
// addresses with user names, headers, included files, hooks, programs of any kind, and logs stay on
// the host. Commits in it are the environment's own; nothing of a .git ever comes back.
//
// Other folders in which version control keeps what belongs to it stay on the host: bare and
// separate folders of git, which are known by what is in them, and those of other systems, by their
// names. Nothing of them comes back either, nor anything that would make a folder of the host one
// of git.
//
// It is always a folder with everything in it, whatever it is on the host: a linked working tree, a
// submodule, or a repository that borrows objects from another. Where git in the environment can do
// less than on the host, [Workspace.Notes] says so; a repository that cannot be carried at all is
// an error that says what to do.
//
// A folder inside a repository goes alone, without a .git; its patch has names that git apply
// understands on the host.
//
// # Trust
//
// The folder is trusted as far as git trusts it: what its .git leads to, such as a repository that
// it borrows objects from, goes along. Repositories inside it are not: they lead to places of their
// own and to where git keeps submodules.
//
// The environment is not trusted. What comes back is bounded in size, and Apply touches nothing
// outside the folder, nor a folder of version control in it, nor a file that is not what was
// uploaded. The kernel keeps names inside the folder, by os.Root.
package workspace
