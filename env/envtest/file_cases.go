package envtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

func fileCases() []testCase {
	return []testCase{
		{name: "contents", rule: ruleExact, run: fileContents},
		{name: "written_by_a_command", rule: ruleExact, run: fileWrittenByCommand},
		{name: "sizes", rule: ruleExact, run: fileSizes},
		{name: "large", rule: ruleExact, run: fileLarge},
		{name: "read_limit", rule: ruleExact, run: fileReadLimit},
		{name: "names", rule: ruleNames, run: fileNames},
		{name: "relative_and_absolute", rule: ruleNames, run: fileRelativeAbsolute},
		{name: "invalid_names", rule: ruleInvalidName, run: fileInvalidNames},
		{name: "missing", rule: rulePathError, run: fileMissing},
		{name: "below_a_file", rule: rulePathError, run: fileBelowFile},
		{name: "permission", rule: rulePathError, run: filePermission},
		{name: "directory_is_no_file", rule: rulePathError, run: fileDirectory},
		{name: "pipe", rule: ruleSpecial, run: filePipe},
		{name: "socket", rule: ruleSpecial, run: fileSocket},
		{name: "device", rule: ruleSpecial, run: fileDevice},
		{name: "symlinks_followed", rule: ruleOpen, run: fileSymlinks},
		{name: "symlink_loop", rule: rulePathError, run: fileSymlinkLoop},
		{name: "open_file", rule: ruleOpen, run: fileOpenFile},
		{name: "stat", rule: ruleStat, run: fileStat},
		{name: "stat_follows_symlinks", rule: ruleStat, run: fileStatSymlinks},
		{name: "lstat", rule: ruleLstat, run: fileLstat},
		{name: "readlink", rule: ruleLstat, run: fileReadLink},
		{name: "readdir_sorted", rule: ruleReadDir, run: fileReadDirSorted},
		{name: "readdir_entries", rule: ruleReadDir, run: fileReadDirEntries},
		{name: "readdir_many", rule: ruleReadDir, run: fileReadDirMany},
		{name: "readdir_of_file", rule: ruleReadDir, run: fileReadDirOfFile},
	}
}

func fileContents(c *caseT) {
	for what, data := range map[string]string{
		"text": "# heading\nline\n", "nothing": "", "bytes": allBytes, "invalid UTF-8": "\xc3\x28",
		"unicode": "😀 café 中文",
		"CRLF":    "a\r\nb\r\n", "no newline": "x", "a byte order mark": "\xef\xbb\xbfx",
		"NULs": strings.Repeat("\x00", 5000),
	} {
		name := c.name(strings.ReplaceAll(what, " ", "-"))
		c.write(name, data)
		c.wantFile(what, name, data)
		r := c.exec(c.script(`cat "$1"`, name))
		c.equal(what+", as a command sees it", r.stdout, data)
	}
}

// fileWrittenByCommand shows mistakes of reads that those of writes undo.
func fileWrittenByCommand(c *caseT) {
	c.sh(`printf "$1" >bytes; : >empty`, octal(allBytes+"\r\n\xc3\x28"))
	c.wantFile("a file that a command wrote", c.name("bytes"), allBytes+"\r\n\xc3\x28")
	c.wantFile("an empty file that a command made", c.name("empty"), "")
}

func fileSizes(c *caseT) {
	for _, n := range []int{
		0, 1, 2, 511, 512, 513, 4095, 4096, 32<<10 - 1, 32<<10 + 1, 1<<20 - 1,
		1 << 20, 1<<20 + 1,
	} {
		data := randomText(n)
		name := c.name(fmt.Sprint(n))
		w, err := c.put(name, data, env.WriteOptions{})
		if err != nil || w.Size != int64(n) || !w.Created {
			c.errorf("writing %d bytes: %+v, error %v", n, w, err)
		}
		c.wantFile(fmt.Sprintf("%d bytes", n), name, data)
		if info, err := c.e.Stat(c.ctx, name); err != nil || info.Size() != int64(n) {
			c.errorf("Stat of a file of %d bytes: %v, error %v", n, info, err)
		}
	}
}

// randomText returns n bytes that differ from one position to the next.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b) // Never fails.
	return string(b)
}

func fileLarge(c *caseT) {
	data := randomText(c.size(50<<20, 5<<20))
	c.write(c.name("large"), data)
	c.wantFile("a large file", c.name("large"), data)
}

func fileReadLimit(c *caseT) {
	c.write(c.name("file"), randomText(2048))
	for limit, ok := range map[int64]bool{1024: false, 2047: false, 2048: true, 0: true} {
		data, err := env.ReadFile(c.ctx, c.e, c.name("file"), limit)
		if ok && (err != nil || len(data) != 2048) {
			c.errorf("env.ReadFile of 2048 bytes with the limit %d: %d bytes, error %v", limit, len(data),
				err)
		}
		if !ok {
			c.wantPathError(fmt.Sprintf("env.ReadFile of 2048 bytes with the limit %d", limit), err, "file",
				env.ErrTooLarge)
		}
	}
}

// urlName is a URL, which models give as the name of a file.
const urlName = "https:/en.wikipedia.org/wiki/Erd%C5%91s_number?a=b&c=d"

func fileNames(c *caseT) {
	for _, name := range []string{
		"with space", " lead", "trail ", "new\nline", "-dash", "--", "-rf", "tab\there", `quo"te`,
		"apostrophe's", `back\slash`, "$HOME", "`id`",
		"*", "?", "[a]", "{a,b}", "~", "#", "%41", "ünïcödé", "e\u0301", "世界", "😀", "...",
		".hidden", "a;b", "a|b", "a&b", "(x)", "<x>", "a=b", "@x",
		"!", "C:", "nul", strings.Repeat("x", 255), urlName, "\xff\xfe",
	} {
		if c.e.Info().OS == "windows" && strings.ContainsAny(name, "\n\t\"\\*?|<>:;") {
			continue
		}
		if c.e.Info().OS == "darwin" && name == "\xff\xfe" {
			continue // File systems of this system hold Unicode only.
		}
		if _, err := c.put(c.name(name), name, env.WriteOptions{}); err != nil {
			c.errorf("writing a file named %q: %v", name, err)
			continue
		}
		c.wantFile(fmt.Sprintf("a file named %q", name), c.name(name), name)
		r := c.exec(c.script(`cat "./$1"`, c.name(name)))
		c.equal(fmt.Sprintf("a file named %q, as a command sees it", name), r.stdout, name)
		entries, err := c.e.ReadDir(c.ctx, path.Dir(c.name(name)))
		if err != nil || !slices.ContainsFunc(entries,
			func(d fs.DirEntry) bool { return d.Name() == path.Base(name) }) {
			c.errorf("ReadDir does not list %q (error %v)", name, err)
		}
		if err := c.e.Remove(c.ctx, c.name(name), env.RemoveOptions{}); err != nil {
			c.errorf("removing a file named %q: %v", name, err)
		}
		if _, err := c.e.Stat(c.ctx, c.name(name)); !errors.Is(err, fs.ErrNotExist) {
			c.errorf("after Remove of %q Stat gives %v", name, err)
		}
	}
}

func fileRelativeAbsolute(c *caseT) {
	c.write(c.name("relative"), "r")
	c.wantFile("a file by its absolute name, written by its relative one", c.abs("relative"), "r")
	c.write(c.abs("absolute"), "a")
	c.wantFile("a file by its relative name, written by its absolute one", c.name("absolute"), "a")
	c.wantFile("a name with ./", "./"+c.name("relative"), "r")
	c.write(c.name("sub", "file"), "s")
	c.wantFile("a name with ..", c.name("sub", "..", "relative"), "r")
	c.wantNames("a directory by its absolute name", c.abs(), "absolute", "relative", "sub")
	c.wantNames("a directory by a name with ..", c.name("sub", ".."), "absolute", "relative", "sub")
	if info, err := c.e.Stat(c.ctx, "."); err != nil || !info.IsDir() {
		c.errorf("Stat of %q: %v, error %v; want a directory", ".", info, err)
	}
	if _, err := c.e.Stat(c.ctx, "/"); err != nil {
		c.errorf("names may point anywhere, but Stat of / gives %v", err)
	}
}

func fileInvalidNames(c *caseT) {
	for _, name := range []string{"", "a\x00b", c.name("x\x00")} {
		for _, m := range fileMethods {
			if name == "" && m.name == "Remove recursively" {
				continue // An environment that takes it for the working directory would lose that.
			}
			c.wantPathError(fmt.Sprintf("%s of %q", m.name, name), m.call(c.ctx, c.e, name), name,
				fs.ErrInvalid)
		}
	}
}

func fileMissing(c *caseT) {
	for _, name := range []string{
		c.name("missing"), c.abs("missing"), c.name("missing", "deeper"),
		c.name(urlName), "/no/such/directory",
	} {
		for _, m := range methods("Open", "Stat", "Lstat", "ReadLink", "ReadDir", "Remove",
			"Remove recursively") {
			c.wantPathError(m.name+" of "+name, m.call(c.ctx, c.e, name), name, fs.ErrNotExist)
		}
	}
	if r, err := c.e.CopyOut(c.ctx, c.name("missing")); err == nil {
		_, err = io.Copy(io.Discard, r)
		_ = r.Close()
		c.is("CopyOut of a missing directory", err, fs.ErrNotExist)
	} else {
		c.is("CopyOut of a missing directory", err, fs.ErrNotExist)
	}
}

func fileBelowFile(c *caseT) {
	c.write(c.name("file"), "x")
	for _, m := range methods("Open", "Stat", "Lstat", "ReadLink", "ReadDir", "WriteFile", "Remove") {
		c.wantPathError(m.name+" of a name below a file", m.call(c.ctx, c.e, c.name("file", "below")), "",
			env.ErrNotDir)
	}
	c.wantFile("the file", c.name("file"), "x")
}

func filePermission(c *caseT) {
	c.unix()
	c.ordinaryUser()
	c.sh(`echo secret >secret; chmod 000 secret
mkdir closed; echo x >closed/file; chmod 000 closed
mkdir fixed; echo x >fixed/file; chmod 555 fixed`)
	c.cleanup(func() { c.exec(c.script(`chmod 755 "$1/closed" "$1/fixed"`, c.dir)) })
	for name, list := range map[string][]fileMethod{
		c.name("secret"):         methods("Open"),
		c.name("closed"):         methods("ReadDir"),
		c.name("closed", "file"): methods("Open", "Stat", "Lstat", "ReadLink", "WriteFile", "Remove"),
		c.name("fixed", "new"):   methods("WriteFile"),
		c.name("fixed", "file"):  methods("Remove"),
		c.name("fixed", "a"):     methods("CopyIn"),
	} {
		for _, m := range list {
			c.wantPathError(m.name+" of "+name, m.call(c.ctx, c.e, name), name, fs.ErrPermission)
		}
	}
}

func fileDirectory(c *caseT) {
	c.write(c.name("sub", "file"), "x")
	for _, m := range methods("Open", "WriteFile") {
		for _, name := range []string{c.name("sub"), c.abs("sub"), "/"} {
			c.wantPathError(m.name+" of the directory "+name, m.call(c.ctx, c.e, name), "", env.ErrIsDir)
		}
	}
	c.wantNames("the directory", c.name("sub"), "file")
}

// special checks that the special file name, of this type, hangs none of the methods that take a
// regular file.
func (c *caseT) special(name string, kind fs.FileMode, list ...string) {
	for _, m := range methods(list...) {
		c.within(m.name+" of "+name, func() {
			c.wantPathError(m.name+" of "+name, m.call(c.ctx, c.e, name), "", env.ErrNotRegular)
		})
	}
	c.within("ReadDir of "+name, func() {
		_, err := c.e.ReadDir(c.ctx, name)
		c.wantPathError("ReadDir of "+name, err, "", env.ErrNotDir)
	})
	c.within("Stat of "+name, func() {
		info, err := c.e.Stat(c.ctx, name)
		if err != nil || info.Mode().Type() != kind {
			c.errorf("Stat of %s: %v, error %v; want type %v", name, info, err, kind)
		}
	})
}

func filePipe(c *caseT) {
	c.unix()
	c.tool("mkfifo")
	c.sh(`mkfifo pipe; ln -s pipe to-pipe`)
	c.special(c.name("pipe"), fs.ModeNamedPipe, "Open", "WriteFile")
	c.special(c.name("to-pipe"), fs.ModeNamedPipe, "Open", "WriteFile")
	c.within("Remove of a pipe", func() {
		if err := c.e.Remove(c.ctx, c.name("pipe"), env.RemoveOptions{}); err != nil {
			c.errorf("Remove of a pipe: %v", err)
		}
	})
}

func fileSocket(c *caseT) {
	c.unix()
	switch c.tool("perl", "python3") {
	case "perl":
		c.sh(`perl -e 'use IO::Socket::UNIX;
IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "socket", Listen => 1) or die'`)
	default:
		c.sh(`python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`)
	}
	c.special(c.name("socket"), fs.ModeSocket, "Open", "WriteFile")
}

// fileDevice writes to no device: an environment that replaces one, as root, would do harm.
func fileDevice(c *caseT) {
	c.unix()
	for _, device := range []string{"/dev/zero", "/dev/null"} {
		if !c.test(`test -c "$1"`, device) {
			c.missing("no %s", device)
		}
		c.special(device, fs.ModeDevice|fs.ModeCharDevice, "Open")
	}
	c.symlink("/dev/zero", c.name("zero"))
	c.special(c.name("zero"), fs.ModeDevice|fs.ModeCharDevice, "Open")
}

func fileSymlinks(c *caseT) {
	c.write(c.name("sub", "file"), "text")
	c.symlink("sub/file", c.name("relative"))
	c.symlink(c.abs("sub", "file"), c.name("absolute"))
	c.symlink("relative", c.name("twice"))
	c.symlink("sub", c.name("dir"))
	c.symlink("nowhere", c.name("dangling"))
	for _, name := range []string{"relative", "absolute", "twice", "dir/file"} {
		c.wantFile("a file through the symlink "+name, c.name(name), "text")
	}
	c.wantNames("a directory through a symlink", c.name("dir"), "file")
	for _, m := range methods("Open", "Stat", "ReadDir") {
		err := m.call(c.ctx, c.e, c.name("dangling"))
		c.wantPathError(m.name+" of a dangling symlink", err, "dangling", fs.ErrNotExist)
	}
	_, err := c.e.Open(c.ctx, c.name("dir"))
	c.wantPathError("Open of a symlink to a directory", err, "", env.ErrIsDir)
}

func fileSymlinkLoop(c *caseT) {
	c.symlink("b", c.name("a"))
	c.symlink("a", c.name("b"))
	for _, name := range []string{c.name("a"), c.name("a", "below")} {
		for _, m := range methods("Open", "Stat", "ReadDir", "WriteFile") {
			c.within(m.name+" of a loop of symlinks", func() {
				c.wantPathError(m.name+" of a loop of symlinks", m.call(c.ctx, c.e, name), "")
			})
		}
	}
	c.wantNames("the directory with the loop", c.dir, "a", "b")
}

func fileOpenFile(c *caseT) {
	data := randomText(300_000)
	c.writeMode(c.name("file"), data, 0o640)
	f, err := c.e.Open(c.ctx, c.name("file"))
	if err != nil {
		c.fatalf("Open: %v", err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(data)) || info.Name() != "file" ||
		!info.Mode().IsRegular() {
		c.errorf("Stat of an open file: %v, error %v; want a regular file %q of %d bytes", info, err,
			"file", len(data))
	}
	head := make([]byte, 1000)
	if _, err := io.ReadFull(f, head); err != nil || string(head) != data[:1000] {
		c.errorf("the first 1000 bytes of an open file are wrong (error %v)", err)
	}
	rest, err := io.ReadAll(f)
	if err != nil || string(rest) != data[1000:] {
		c.errorf("the other %d bytes of an open file are wrong (error %v)", len(data)-1000, err)
	}
	if n, err := f.Read(head); n != 0 || !errors.Is(err, io.EOF) {
		c.errorf("Read at the end: %d bytes, error %v; want io.EOF", n, err)
	}
	if err := f.Close(); err != nil {
		c.errorf("closing a file: %v", err)
	}
	if _, err := f.Read(head); err == nil || errors.Is(err, io.EOF) {
		c.errorf("Read of a closed file: error %v, want one that is not io.EOF", err)
	}
	for range 200 { // A file that is closed early leaves nothing behind.
		f, err := c.e.Open(c.ctx, c.name("file"))
		if err != nil {
			c.fatalf("opening a file for the umpteenth time: %v", err)
		}
		_, _ = f.Read(head[:1])
		_ = f.Close()
	}
}

func fileStat(c *caseT) {
	c.unix()
	c.sh(`printf 12345 >file; chmod 640 file; TZ=UTC0 touch -t 200102030405.06 file
mkdir sub; chmod 750 sub; mkdir open; chmod 777 open`)
	info, err := c.e.Stat(c.ctx, c.name("file"))
	if err != nil {
		c.fatalf("Stat: %v", err)
	}
	if info.Name() != "file" || info.Size() != 5 || info.Mode() != 0o640 || info.IsDir() {
		c.errorf("Stat of a file gives name %q, size %d, mode %v; want file, 5, 0640", info.Name(),
			info.Size(), info.Mode())
	}
	if got := info.ModTime().Unix(); got != 981173106 {
		c.errorf("Stat of a file from 2001-02-03 04:05:06 UTC gives the time %v", info.ModTime().UTC())
	}
	c.wantMode("a directory", c.name("sub"), fs.ModeDir|0o750)
	c.wantMode("a directory for all", c.name("open"), fs.ModeDir|0o777)
}

func fileStatSymlinks(c *caseT) {
	c.writeMode(c.name("file"), "12345", 0o600)
	c.write(c.name("sub", "x"), "")
	c.symlink("file", c.name("symlink"))
	c.symlink("sub", c.name("dir-symlink"))
	info, err := c.e.Stat(c.ctx, c.name("symlink"))
	if err != nil {
		c.fatalf("Stat of a symlink: %v", err)
	}
	if info.Mode() != 0o600 || info.Size() != 5 || info.Name() != "symlink" {
		c.errorf("Stat of a symlink gives name %q, size %d, mode %v; want the name of the symlink, and "+
			"size and mode of the file", info.Name(), info.Size(), info.Mode())
	}
	if info, err := c.e.Stat(c.ctx, c.name("dir-symlink")); err != nil || !info.IsDir() {
		c.errorf("Stat of a symlink to a directory: %v, error %v; want a directory", info, err)
	}
}

func fileLstat(c *caseT) {
	c.writeMode(c.name("file"), "12345", 0o640)
	c.write(c.name("sub", "x"), "")
	c.symlink("file", c.name("symlink"))
	c.symlink("sub", c.name("dir-symlink"))
	c.symlink("nowhere", c.name("dangling"))
	for _, name := range []string{"symlink", "dir-symlink", "dangling"} {
		info, err := c.e.Lstat(c.ctx, c.name(name))
		if err != nil || info.Mode().Type() != fs.ModeSymlink || info.IsDir() || info.Name() != name {
			c.errorf("Lstat of the symlink %q: %v, error %v", name, info, err)
		}
	}
	info, err := c.e.Lstat(c.ctx, c.name("file"))
	if err != nil || info.Mode() != 0o640 || info.Size() != 5 || info.Name() != "file" {
		c.errorf("Lstat of a file: %v, error %v; want file, 5, 0640", info, err)
	}
	if info, err = c.e.Lstat(c.ctx, c.name("sub")); err != nil || !info.IsDir() {
		c.errorf("Lstat of a directory: %v, error %v", info, err)
	}
	// Only the last element of a name is the symlink itself.
	info, err = c.e.Lstat(c.ctx, c.name("dir-symlink", "x"))
	if err != nil || !info.Mode().IsRegular() {
		c.errorf("Lstat of a file through a symlink to its directory: %v, error %v", info, err)
	}
}

func fileReadLink(c *caseT) {
	c.write(c.name("sub", "x"), "")
	targets := []string{
		"sub", "sub/", "nowhere", "../x", "/etc/passwd", "./sub/../sub", "with space",
		"世界", "a//b",
	}
	for i, target := range targets {
		name := c.name(fmt.Sprint("symlink", i))
		c.symlink(target, name)
		if got, err := c.e.ReadLink(c.ctx, name); got != target || err != nil {
			c.errorf("ReadLink of a symlink to %q: %q, error %v", target, got, err)
		}
	}
	c.symlink("sub", c.name("dir"))
	c.symlink("../file", c.name("sub", "symlink"))
	if got, err := c.e.ReadLink(c.ctx, c.name("dir", "symlink")); got != "../file" || err != nil {
		c.errorf("ReadLink through a symlink to its directory: %q, error %v", got, err)
	}
	for _, name := range []string{c.name("sub", "x"), c.name("sub"), c.abs("sub")} {
		_, err := c.e.ReadLink(c.ctx, name)
		c.wantPathError("ReadLink of "+name, err, name, fs.ErrInvalid)
	}
}
