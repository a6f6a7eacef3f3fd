package envtest

import (
	"errors"
	"io/fs"

	"github.com/sandboxagent/sandboxagent/env"
)

func removeCases() []testCase {
	return []testCase{
		{name: "file", rule: ruleRemove, run: removeFile},
		{name: "directory", rule: ruleRemove, run: removeDirectory},
		{name: "recursive", rule: ruleRemove, run: removeRecursive},
		{name: "symlink_itself", rule: ruleRemove, run: removeSymlink},
		{name: "symlinks_below_not_followed", rule: ruleRemove, run: removeSymlinksBelow},
		{name: "missing", rule: rulePathError, run: removeMissing},
	}
}

func (c *caseT) remove(what, name string, recursive bool) {
	if err := c.e.Remove(c.ctx, name, env.RemoveOptions{Recursive: recursive}); err != nil {
		c.errorf("%s: %v", what, err)
	}
}

func removeFile(c *caseT) {
	c.write(c.name("a"), "x")
	c.write(c.name("b"), "x")
	c.writeMode(c.name("c"), "x", 0o444)
	c.remove("a file", c.name("a"), false)
	c.remove("a file, recursively", c.name("b"), true)
	c.remove("a file without the right to write", c.abs("c"), false)
	c.wantNames("the directory", c.dir)
}

func removeDirectory(c *caseT) {
	c.write(c.name("full", "sub", "file"), "x")
	c.wantPathError("a directory that is not empty", c.e.Remove(c.ctx, c.name("full"),
		env.RemoveOptions{}), "full")
	c.wantFile("a file in the directory", c.name("full", "sub", "file"), "x")
	c.remove("a file", c.name("full", "sub", "file"), false)
	c.remove("an empty directory", c.name("full", "sub"), false)
	c.wantNames("the directory around it", c.name("full"))
}

func removeRecursive(c *caseT) {
	for _, name := range []string{
		"a/b/c/file", "a/file", "a/b/.hidden", "a/with space/-dash",
		"keep",
	} {
		c.write(c.name(name), "x")
	}
	c.remove("a whole tree", c.name("a"), true)
	c.wantNames("the directory", c.dir, "keep")
}

func removeSymlink(c *caseT) {
	c.write(c.name("sub", "file"), "x")
	c.symlink("sub/file", c.name("a"))
	c.symlink("sub", c.name("b"))
	c.symlink("sub", c.name("c"))
	c.symlink("nowhere", c.name("d"))
	c.symlink("e", c.name("e"))
	c.remove("a symlink to a file", c.name("a"), false)
	c.remove("a symlink to a directory", c.name("b"), false)
	c.remove("a symlink to a directory, recursively", c.name("c"), true)
	c.remove("a dangling symlink", c.name("d"), false)
	c.remove("a symlink to itself", c.name("e"), true)
	c.wantNames("the directory", c.dir, "sub")
	c.wantFile("the target of the symlinks", c.name("sub", "file"), "x")
}

func removeSymlinksBelow(c *caseT) {
	c.write(c.name("outside", "file"), "x")
	c.write(c.name("tree", "sub", "file"), "x")
	c.symlink("../outside", c.name("tree", "symlink"))
	c.symlink(c.abs("outside"), c.name("tree", "sub", "absolute"))
	c.remove("a tree with symlinks that leave it", c.name("tree"), true)
	c.wantNames("the directory", c.dir, "outside")
	c.wantFile("a file outside the tree", c.name("outside", "file"), "x")
}

func removeMissing(c *caseT) {
	c.write(c.name("file"), "x")
	for _, m := range methods("Remove", "Remove recursively") {
		c.wantPathError(m.name+" of a missing file", m.call(c.ctx, c.e, c.name("missing")), "missing",
			fs.ErrNotExist)
		c.wantPathError(m.name+" in a missing directory", m.call(c.ctx, c.e, c.name("no", "missing")),
			"missing", fs.ErrNotExist)
	}
	c.remove("a file", c.name("file"), false)
	if err := c.e.Remove(c.ctx, c.name("file"), env.RemoveOptions{}); !errors.Is(err, fs.ErrNotExist) {
		c.errorf("a second Remove gives %v, want fs.ErrNotExist", err)
	}
}
