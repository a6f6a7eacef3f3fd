package confine

// Seen is what of this machine a plan was made by. Bubblewrap is told names, and names may stand for something else by
// then: what has become of them is compared from inside.
type Seen struct {
	// Files are what may be changed, and what is mounted below it, by their names.
	Files map[string]File `json:"files,omitempty"`
	// Mounts are those below what may be changed.
	Mounts []Mount `json:"mounts,omitempty"`
	// Namespaces are those outside, as links to them read, by their kinds.
	Namespaces map[string]string `json:"namespaces,omitempty"`
}

// File is which file or folder something is.
type File struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// Mount is a part of a file system, and where it is seen.
type Mount struct {
	Point string `json:"point"`
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	Root  string `json:"root"`
}
