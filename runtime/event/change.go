package event

// ChangeKind says what happened to a file.
type ChangeKind string

// Kinds of changes.
const (
	FileCreated  ChangeKind = "created"
	FileModified ChangeKind = "modified"
	FileDeleted  ChangeKind = "deleted"
)

// FileChange is one file that a tool changed. A move is a deletion and a creation.
type FileChange struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	// Backup is the file on the host that has what this one held before; empty if there is none.
	Backup string `json:"backup,omitempty"`
}
