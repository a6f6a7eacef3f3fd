package event

// ChangeKind is the kind of a change of a file.
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
	// Backup is the file on the host with the content before the change; empty without one.
	Backup string `json:"backup,omitempty"`
}
