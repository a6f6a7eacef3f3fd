package envtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing/iotest"

	"github.com/sandboxagent/sandboxagent/env"
)

func copyCases() []testCase {
	return []testCase{
		{name: "in", rule: ruleCopyIn, run: copyIn},
		{name: "in_over_existing", rule: ruleCopyIn, run: copyInExisting},
		{name: "in_2000_files", rule: ruleCopyIn, run: copyInMany},
		{name: "in_leaving_names", rule: ruleOutside, run: copyInLeavingNames},
		{name: "in_through_symlinks", rule: ruleOutside, run: copyInThroughSymlinks},
		{name: "in_hard_links", rule: ruleOutside, run: copyInHardLinks},
		{name: "in_devices", rule: ruleOutside, run: copyInDevices},
		{name: "in_damaged", rule: ruleBadArchive, run: copyInDamaged},
		{name: "in_not_a_directory", rule: rulePathError, run: copyInNotDirectory},
		{name: "out", rule: ruleCopyOut, run: copyOut},
		{name: "out_names", rule: ruleCopyOut, run: copyOutNames},
		{name: "out_special_files", rule: ruleCopyOut, run: copyOutSpecial},
		{name: "out_hard_links", rule: ruleCopyOut, run: copyOutHardLinks},
		{name: "out_bad_names", rule: ruleOutNames, run: copyOutBadNames},
		{name: "out_closed_early", rule: ruleOutNames, run: copyOutClosedEarly},
		{name: "round_trip", rule: ruleCopyOut, run: copyRoundTrip},
	}
}

// tree is an archive with something of everything, in lexical order.
func tree() []tarEntry {
	long := strings.Repeat("long", 50)
	return []tarEntry{
		tarFile(" lead", "x"),
		tarFile("-dash", "x"),
		tarFile("all-bytes", allBytes),
		tarSymlink("dangling", "no/such/file"),
		tarSymlink("dir-symlink", "files"),
		tarDir("empty-dir", 0o755),
		tarFileMode("executable", "#!/bin/sh\n", 0o755),
		tarDir("files", 0o750),
		tarFile("files/big", strings.Repeat("0123456789abcdef", 20_000)),
		tarFile("files/empty", ""),
		tarSymlink("files/up", "../secret"),
		tarFileMode("for-all", "x", 0o666),
		tarDir(long, 0o755),
		tarFile(long+"/"+long, "a long name"),
		tarFileMode("read-only", "x", 0o444),
		tarFileMode("secret", "x", 0o600),
		tarSymlink("symlink", "files/empty"),
		tarFile("with space", "x"),
		tarSymlink("zabs", "/no/such/file"),
		tarFile("ünïcödé 😀", "x"),
	}
}

func lines(entries []tarEntry) []string {
	var l []string
	for _, e := range entries {
		l = append(l, e.line())
	}
	return l
}

// in unpacks an archive, which must work.
func (c *caseT) in(dir string, entries ...tarEntry) {
	if err := c.e.CopyIn(c.ctx, dir, archive(entries...)); err != nil {
		c.fatalf("CopyIn: %v", err)
	}
}

// out packs names and returns the entries.
func (c *caseT) out(dir string, names ...string) ([]string, error) {
	r, err := c.e.CopyOut(c.ctx, dir, names...)
	if err != nil {
		return nil, err
	}
	l, err := unpack(r)
	return l, errors.Join(err, r.Close())
}

// wantOut records a failure unless CopyOut gives exactly these entries. One for the directory
// itself is left out.
func (c *caseT) wantOut(what string, want []string, dir string, names ...string) {
	got, err := c.out(dir, names...)
	if err != nil {
		c.errorf("%s: CopyOut: %v", what, err)
		return
	}
	got = slices.DeleteFunc(got, func(s string) bool {
		return strings.HasPrefix(s, `"." directory`) ||
			strings.HasPrefix(s, `"" directory`)
	})
	if !slices.Equal(got, want) {
		c.errorf("%s: the archive holds\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"),
			strings.Join(want, "\n\t"))
	}
}

func copyIn(c *caseT) {
	c.unix()
	c.in(c.name("new", "dir"), tree()...)
	at := func(name string) string { return c.name("new", "dir", name) }
	for _, e := range tree() {
		name := strings.TrimSuffix(e.Name, "/")
		switch e.Typeflag {
		case tar.TypeSymlink:
			r := c.exec(c.script(`readlink "$1"`, at(name)))
			c.equal("the symlink "+name, r.stdout, e.Linkname+"\n")
		case tar.TypeDir:
			c.wantMode("the directory "+name, at(name), fs.ModeDir|fs.FileMode(e.Mode))
		default:
			c.wantFile("the file "+name, at(name), e.data)
			c.wantMode("the file "+name, at(name), fs.FileMode(e.Mode))
		}
	}
	c.wantNames("an empty directory", at("empty-dir"))
	c.in(c.abs("absolute"), tarFile("a/b/c", "x"))
	c.wantFile("a file whose directories the archive does not name", c.name("absolute", "a", "b", "c"),
		"x")
	c.in(c.name("nothing"))
	c.wantNames("a directory from an empty archive", c.name("nothing"))
}

func copyInExisting(c *caseT) {
	c.unix()
	c.write(c.name("dir", "other"), "other")
	c.writeMode(c.name("dir", "file"), "a long old content", 0o600)
	c.writeMode(c.name("dir", "read-only"), "old", 0o444)
	c.write(c.name("dir", "files", "kept"), "kept")
	c.write(c.name("target"), "target")
	c.symlink("../target", c.name("dir", "symlink"))
	c.in(c.name("dir"), tarFileMode("file", "new", 0o755), tarFile("read-only", "new"),
		tarDir("files", 0o700), tarFile("files/new", "new"), tarSymlink("symlink", "file"))
	c.wantNames("the directory", c.name("dir"), "file", "files", "other", "read-only", "symlink")
	c.wantFile("a file that the archive has, too", c.name("dir", "file"), "new")
	c.wantMode("a file that the archive has, too", c.name("dir", "file"), 0o755)
	c.wantFile("a read-only file that the archive has, too", c.name("dir", "read-only"), "new")
	c.wantFile("a file that the archive does not have", c.name("dir", "other"), "other")
	c.wantNames("a directory that the archive has, too", c.name("dir", "files"), "kept", "new")
	c.wantMode("a directory that the archive has, too", c.name("dir", "files"), fs.ModeDir|0o700)
	c.wantFile("a symlink that was replaced", c.name("dir", "symlink"), "new")
	c.wantFile("the target of the old symlink", c.name("target"), "target")
}

func copyInMany(c *caseT) {
	var entries []tarEntry
	for i := range 20 {
		entries = append(entries, tarDir(fmt.Sprintf("d%02d", i), 0o755))
		for j := range 100 {
			entries = append(entries, tarFile(fmt.Sprintf("d%02d/f%03d", i, j), fmt.Sprintf("file %d of %d",
				j, i)))
		}
	}
	c.in(c.name("many"), entries...)
	c.wantOut("2000 files", lines(entries), c.name("many"))
}

// refused checks that CopyIn into the directory "in" refuses entries and changes nothing outside of
// it.
func (c *caseT) refused(what string, entries ...tarEntry) {
	err := c.e.CopyIn(c.ctx, c.name("in"), archive(entries...))
	if err == nil {
		c.errorf("%s: no error", what)
	}
	c.unharmed(what)
}

// outside prepares the directory "outside", which no archive may change, beside the directory "in".
func (c *caseT) outside() {
	c.unix()
	c.write(c.name("outside", "file"), "untouched")
	c.write(c.name("in", "present"), "x")
}

func (c *caseT) unharmed(what string) {
	c.wantNames(what+": the directory around", c.dir, "in", "outside")
	c.wantNames(what+": the directory outside", c.name("outside"), "file")
	c.wantFile(what+": the file outside", c.name("outside", "file"), "untouched")
	if got, err := c.get(c.abs("..", "escaped")); err == nil {
		c.errorf("%s: a file was created outside: %q", what, got)
	}
}

func copyInLeavingNames(c *caseT) {
	c.outside()
	for _, name := range []string{
		"../escaped", "../outside/file", "../outside/new", "a/../../escaped", "a/../../outside/file",
		"./../escaped", "present/../../escaped",
		c.abs("outside", "file"), c.abs("outside", "new"), "../in/../escaped", "..",
	} {
		c.refused(fmt.Sprintf("a file named %q", name), tarFile("first", "x"), tarFile(name, "escaped"))
		c.refused(fmt.Sprintf("a symlink named %q", name), tarSymlink(name, "present"))
	}
	c.refused("a directory named ../escaped", tarDir("../escaped", 0o755))
	c.wantFile("an entry before the error", c.name("in", "first"), "x")
}

func copyInThroughSymlinks(c *caseT) {
	c.outside()
	for what, target := range map[string]string{
		"relative": "../outside",
		"absolute": c.abs("outside"),
	} {
		link := "symlink-" + what
		c.refused("a file through a symlink of the archive, "+what, tarSymlink(link, target),
			tarFile(link+"/file", "escaped"))
		c.refused("a new file through an existing symlink, "+what, tarFile(link+"/new", "escaped"))
		c.refused("a directory through an existing symlink, "+what, tarDir(link+"/new", 0o777))
		c.refused("a symlink through an existing symlink, "+what, tarSymlink(link+"/new", "file"))
		deep := "chain-" + what
		c.refused("a file through two symlinks, "+what, tarSymlink(deep+"1", target), tarSymlink(deep+"2",
			deep+"1"), tarFile(deep+"2/file", "escaped"))
		c.refused("a file through a symlink and ..", tarDir("sub", 0o755),
			tarSymlink("sub/"+link, "../.."), tarFile("sub/"+link+"/outside/file", "escaped"))
		// The last element is replaced, not followed; to refuse it would do as well.
		file := "file-" + what
		_ = c.e.CopyIn(c.ctx, c.name("in"), archive(tarSymlink(file, target+"/file"), tarFile(file,
			"escaped")))
		c.unharmed("a file instead of a symlink, " + what)
		dir := "dir-" + what
		_ = c.e.CopyIn(c.ctx, c.name("in"), archive(tarSymlink(dir, target), tarDir(dir, 0o700),
			tarFile("ok", "x")))
		c.unharmed("a directory instead of a symlink, " + what)
	}
	if info, err := c.e.Stat(c.ctx, c.name("outside")); err != nil || info.Mode().Perm() == 0o700 {
		c.errorf("the mode of a directory outside was changed (%v, error %v)", info, err)
	}
}

func copyInHardLinks(c *caseT) {
	c.outside()
	for _, target := range []string{"../outside/file", c.abs("outside", "file")} {
		c.refused("a hard link to "+target, tarHardLink("hard", target))
		_ = c.e.CopyIn(c.ctx, c.name("in"), archive(tarHardLink("hard2", target), tarFile("hard2",
			"escaped")))
		c.unharmed("a file over a hard link to " + target)
	}
	c.refused("a hard link through a symlink", tarSymlink("symlink", "../outside"),
		tarHardLink("hard3", "symlink/file"))
	_ = c.e.CopyIn(c.ctx, c.name("in"), archive(tarSymlink("soft", "../outside/file"),
		tarHardLink("hard4", "soft"), tarFileMode("hard4", "escaped", 0o777)))
	c.unharmed("a file over a hard link to a symlink")
}

func copyInDevices(c *caseT) {
	c.outside()
	c.refused("a device", tarDevice("device"))
	if _, err := c.e.Stat(c.ctx, c.name("in", "device")); !errors.Is(err, fs.ErrNotExist) {
		c.errorf("after an archive with a device Stat gives %v, want fs.ErrNotExist", err)
	}
}

func copyInDamaged(c *caseT) {
	whole := pack(tarFile("first", "1"), tarFile("second", strings.Repeat("2", 5000)))
	broken := errors.New("the source broke")
	for what, r := range map[string]io.Reader{
		"an archive that ends in a file":      bytes.NewReader(whole[:3000]),
		"an archive that ends in a header":    bytes.NewReader(whole[:1100]),
		"an archive that ends after a header": bytes.NewReader(whole[:1536]),
		"no archive":                          strings.NewReader(strings.Repeat("no archive\n", 200)),
		"an archive with a changed header":    bytes.NewReader(append([]byte("X"), whole[1:]...)),
		"an archive that ends one byte early": bytes.NewReader(whole[:1536+4999]),
		"an archive behind a byte that counts": io.MultiReader(strings.NewReader("x"),
			bytes.NewReader(whole)),
	} {
		if err := c.e.CopyIn(c.ctx, c.name("in"), r); err == nil {
			c.errorf("%s: no error", what)
		}
	}
	err := c.e.CopyIn(c.ctx, c.name("in"), io.MultiReader(bytes.NewReader(whole[:2000]),
		iotest.ErrReader(broken)))
	c.is("a reader that fails", err, broken)
	if got := c.read(c.name("in", "first")); got != "1" {
		c.errorf("an entry before the damage holds %q, want %q", got, "1")
	}
	if got, err := c.get(c.name("in", "second")); err == nil && len(got) == 5000 {
		c.errorf("a file that was cut in the archive arrived whole")
	}
}

func copyInNotDirectory(c *caseT) {
	c.write(c.name("file"), "x")
	for _, name := range []string{c.name("file"), c.name("file", "below")} {
		err := c.e.CopyIn(c.ctx, name, archive(tarFile("a", "x")))
		c.wantPathError("CopyIn into "+name, err, "", env.ErrNotDir)
	}
	c.wantFile("the file", c.name("file"), "x")
}

func copyOut(c *caseT) {
	c.unix()
	c.sh(`umask 022; mkdir -p a/empty a/b; printf 1 >a/b/file; chmod 640 a/b/file
printf "$1" >a/bytes; ln -s b/file a/symlink; ln -s nowhere a/dangling
: >a/.hidden; : >'a/with space'; chmod 700 a/b`, octal(allBytes))
	c.wantOut("a tree that commands made", []string{
		`".hidden" file 0644 ""`, `"b" directory 0700`, `"b/file" file 0640 "1"`,
		tarFile("bytes", allBytes).line(),
		`"dangling" symlink to "nowhere"`, `"empty" directory 0755`, `"symlink" symlink to "b/file"`,
		`"with space" file 0644 ""`,
	}, c.name("a"))
	c.wantOut("an empty directory", nil, c.abs("a", "empty"))
}

func copyOutNames(c *caseT) {
	c.in(c.dir, tarDir("a", 0o755), tarFile("a/1", "1"), tarFile("a/2", "2"), tarFile("b", "b"),
		tarFile("-c", "c"), tarFile("d e", "d"), tarDir("f", 0o755), tarFile("f/x", "x"))
	for _, tc := range []struct{ names, want []string }{
		{[]string{"b"}, []string{`"b" file 0644 "b"`}},
		{[]string{"a/2"}, []string{`"a/2" file 0644 "2"`}},
		{[]string{"a"}, []string{`"a" directory 0755`, `"a/1" file 0644 "1"`, `"a/2" file 0644 "2"`}},
		{[]string{"-c", "b", "d e"}, []string{
			`"-c" file 0644 "c"`, `"b" file 0644 "b"`,
			`"d e" file 0644 "d"`,
		}},
		{[]string{"f", "b"}, []string{`"b" file 0644 "b"`, `"f" directory 0755`, `"f/x" file 0644 "x"`}},
	} {
		c.wantOut(fmt.Sprintf("the names %q", tc.names), tc.want, c.dir, tc.names...)
	}
}

func copyOutSpecial(c *caseT) {
	c.unix()
	c.tool("mkfifo")
	c.sh(`umask 022; mkdir a; mkfifo a/pipe; : >a/file`)
	c.within("CopyOut of a directory with a pipe", func() {
		c.wantOut("a directory with a pipe", []string{`"file" file 0644 ""`}, c.name("a"))
	})
}

func copyOutHardLinks(c *caseT) {
	c.unix()
	c.sh(`umask 022; mkdir a; printf text >a/one; ln a/one a/two`)
	c.wantOut("hard links", []string{`"one" file 0644 "text"`, `"two" file 0644 "text"`}, c.name("a"))
}

func copyOutBadNames(c *caseT) {
	c.write(c.name("outside"), "x")
	c.in(c.name("a"), tarFile("file", "x"), tarSymlink("symlink", ".."))
	for _, name := range []string{
		"../outside", "/etc/passwd", c.abs("a", "file"),
		"file/../../outside", "..", "symlink/outside",
	} {
		if got, err := c.out(c.name("a"), name); err == nil {
			c.errorf("the name %q leaves the directory, but CopyOut gives %q", name, got)
		}
	}
	for _, names := range [][]string{{"missing"}, {"file", "missing"}, {"missing/deeper"}} {
		_, err := c.out(c.name("a"), names...)
		c.is(fmt.Sprintf("CopyOut of the names %q", names), err, fs.ErrNotExist)
	}
}

func copyOutClosedEarly(c *caseT) {
	c.in(c.name("a"), tarFile("1", randomText(4<<20)), tarFile("2", "x"))
	for range 20 {
		r, err := c.e.CopyOut(c.ctx, c.name("a"))
		if err != nil {
			c.fatalf("CopyOut: %v", err)
		}
		_, _ = io.ReadFull(r, make([]byte, 1000))
		c.within("closing a CopyOut early", func() { _ = r.Close() })
		if n, err := io.Copy(io.Discard, r); err == nil && n < 4<<20 {
			c.errorf("a stream that was closed early ends after %d bytes as if it were whole", n)
		}
	}
	c.wantOut("one file, afterwards", []string{`"2" file 0644 "x"`}, c.name("a"), "2")
}

func copyRoundTrip(c *caseT) {
	c.unix()
	c.in(c.name("a"), tree()...)
	c.wantOut("a tree that was copied in", lines(tree()), c.name("a"))
	r, err := c.e.CopyOut(c.ctx, c.name("a"))
	if err != nil {
		c.fatalf("CopyOut: %v", err)
	}
	err = c.e.CopyIn(c.ctx, c.name("b"), r)
	if err := errors.Join(err, r.Close()); err != nil {
		c.fatalf("CopyIn of the archive of CopyOut: %v", err)
	}
	c.wantOut("a tree that was copied in, out and in", lines(tree()), c.name("b"))
}
