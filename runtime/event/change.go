package event

// ChangeKind is the kind of a change of a file.
type ChangeKind string

// Kinds of changes.
const (
	FileCreated  ChangeKind = "created"
	FileModified ChangeKind = "modified"
	FileDeleted  ChangeKind = "deleted"
)

// FileChange is one file that a tool or a command changed. A move is a deletion and a creation.
type FileChange struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	// Insertions and Deletions are numbers of lines, where they are counted: in a Result. They are
	// zero for a binary file.
	Insertions int `json:"insertions,omitempty"`
	Deletions  int `json:"deletions,omitempty"`
	// Backup is the file on the host with the content before the change; empty without one.
	Backup string `json:"backup,omitempty"`
}
