package envtest

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
)

func fileReadDirSorted(c *caseT) {
	names := []string{"b", "a", "B", "A", "10", "9", "_", ".h", "ab", "a.b", "a b", "é", "世"}
	if c.e.Info().OS != "linux" {
		// Upper and lower case may be one.
		names = []string{"b", "a", "10", "9", "_", ".h", "ab", "a.b", "a b", "世"}
	}
	for _, name := range names {
		c.write(c.name(name), "")
	}
	slices.Sort(names)
	c.wantNames("a directory", c.dir, names...)
	if err := c.e.CopyIn(c.ctx, c.name("empty"), emptyArchive()); err != nil {
		c.fatalf("making a directory: %v", err)
	}
	c.wantNames("an empty directory", c.name("empty"))
}

func fileReadDirEntries(c *caseT) {
	c.writeMode(c.name("file"), "12345", 0o640)
	c.write(c.name("sub", "x"), "")
	c.symlink("file", c.name("symlink"))
	c.symlink("sub", c.name("dir-symlink"))
	c.symlink("nowhere", c.name("dangling"))
	want := map[string]fs.FileMode{
		"file": 0, "sub": fs.ModeDir, "symlink": fs.ModeSymlink,
		"dir-symlink": fs.ModeSymlink, "dangling": fs.ModeSymlink,
	}
	entries, err := c.e.ReadDir(c.ctx, c.dir)
	if err != nil || len(entries) != len(want) {
		c.fatalf("ReadDir gives %v, error %v; want %d entries", entries, err, len(want))
	}
	for _, d := range entries {
		info, err := d.Info()
		if err != nil {
			c.errorf("Info of the entry %q: %v", d.Name(), err)
			continue
		}
		kind := want[d.Name()]
		if d.Type() != kind || info.Mode().Type() != kind || d.IsDir() != (kind == fs.ModeDir) ||
			info.Name() != d.Name() {
			c.errorf("the entry %q has type %v, Info %v of type %v, IsDir %v; want type %v",
				d.Name(), d.Type(), info.Name(), info.Mode().Type(), d.IsDir(), kind)
		}
		if d.Name() == "file" && (info.Size() != 5 || info.Mode() != 0o640) {
			c.errorf("the entry of a file has size %d and mode %v, want 5 and 0640", info.Size(),
				info.Mode())
		}
	}
}

func fileReadDirMany(c *caseT) {
	var entries []tarEntry
	var names []string
	for i := range 1500 {
		names = append(names, fmt.Sprintf("%05d", i))
		entries = append(entries, tarFile(names[i], ""))
	}
	if err := c.e.CopyIn(c.ctx, c.dir, archive(entries...)); err != nil {
		c.fatalf("making 1500 files: %v", err)
	}
	c.wantNames("a directory with 1500 files", c.dir, names...)
}

func fileReadDirOfFile(c *caseT) {
	c.write(c.name("file"), "x")
	_, err := c.e.ReadDir(c.ctx, c.name("file"))
	c.wantPathError("ReadDir of a file", err, "file", env.ErrNotDir)
	c.symlink("file", c.name("symlink"))
	_, err = c.e.ReadDir(c.ctx, c.name("symlink"))
	c.wantPathError("ReadDir of a symlink to a file", err, "symlink", env.ErrNotDir)
}
