package envtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func writeCases() []testCase {
	return []testCase{
		{name: "result", rule: ruleWrite, run: writeResult},
		{name: "overwrites", rule: ruleWrite, run: writeOverwrites},
		{name: "reader_in_pieces", rule: ruleWrite, run: writePieces},
		{name: "parents", rule: ruleParents, run: writeParents},
		{name: "mode_of_new_file", rule: ruleMode, run: writeModeNew},
		{name: "mode_kept", rule: ruleMode, run: writeModeKept},
		{name: "mode_given", rule: ruleMode, run: writeModeGiven},
		{name: "through_symlink", rule: ruleLinks, run: writeThroughSymlink},
		{name: "through_dangling_symlink", rule: ruleLinks, run: writeDanglingSymlink},
		{name: "read_only_file", rule: rulePathError, run: writeReadOnlyFile},
		{name: "in_read_only_directory", rule: ruleInPlace, run: writeFixedDirectory},
		{name: "atomic", rule: ruleAtomic, run: writeAtomic},
		{name: "open_reader_keeps_old_content", rule: ruleAtomic, run: writeOpenReader},
		{name: "concurrent_writers", rule: ruleAtomic, run: writeConcurrent},
		{name: "failing_reader", rule: ruleWriteFails, run: writeFailingReader},
		{name: "cancelled", rule: ruleWriteFails, run: writeCancelled},
		{name: "must_not_exist", rule: ruleCondition, run: writeMustNotExist},
		{name: "must_not_exist_one_winner", rule: ruleCondition, run: writeMustNotExistRace},
		{name: "if_sha256", rule: ruleCondition, run: writeIfSHA256},
		{name: "if_sha256_checked_last", rule: ruleCondition, run: writeIfSHA256Late},
		{name: "if_sha256_one_winner", rule: ruleCondition, run: writeIfSHA256Race},
	}
}

func writeResult(c *caseT) {
	for _, tc := range []struct {
		data string
		want env.Written
	}{{"12345", env.Written{Size: 5, Created: true}}, {"123", env.Written{Size: 3}}, {
		"",
		env.Written{},
	}} {
		got, err := c.put(c.name("file"), tc.data, env.WriteOptions{})
		if err != nil || got != tc.want {
			c.errorf("writing %q: %+v, error %v; want %+v", tc.data, got, err, tc.want)
		}
		c.wantFile("the file", c.name("file"), tc.data)
	}
	c.wantNames("the directory", c.dir, "file")
}

func writeOverwrites(c *caseT) {
	c.write(c.name("file"), strings.Repeat("a long line\n", 1000))
	c.write(c.name("file"), "short")
	c.wantFile("a file with less than before", c.name("file"), "short")
	c.write(c.name("file"), "")
	c.wantFile("a file with nothing", c.name("file"), "")
	c.sh(`echo made by a command >made`)
	c.write(c.name("made"), "x")
	c.equal("a file that a command sees after the write", c.sh("cat made"), "x")
}

func writePieces(c *caseT) {
	data := randomText(5000)
	for what, wrap := range map[string]func(io.Reader) io.Reader{
		"byte by byte": iotest.OneByteReader,
		"halves":       iotest.HalfReader, "end with data": iotest.DataErrReader,
	} {
		if _, err := c.e.WriteFile(c.ctx, c.name("file"), wrap(strings.NewReader(data)),
			env.WriteOptions{}); err != nil {
			c.errorf("%s: %v", what, err)
		}
		c.wantFile(what, c.name("file"), data)
	}
}

// umask returns the umask of commands.
func (c *caseT) umask() fs.FileMode {
	c.unix()
	n, err := strconv.ParseUint(strings.TrimSpace(c.sh("umask")), 8, 32)
	if err != nil {
		c.fatalf("the umask of a command: %v", err)
	}
	return fs.FileMode(n)
}

func writeParents(c *caseT) {
	c.write(c.name("a", "b", "c", "file"), "1")
	c.write(c.abs("d", "e", "file"), "2")
	c.wantFile("a file in new directories, relative", c.name("a", "b", "c", "file"), "1")
	c.wantFile("a file in new directories, absolute", c.name("d", "e", "file"), "2")
	want := fs.ModeDir | 0o777&^c.umask()
	for _, name := range []string{"a", "a/b", "a/b/c", "d", "d/e"} {
		c.wantMode("a new directory", c.name(name), want)
	}
}

func writeModeNew(c *caseT) {
	c.write(c.name("file"), "x")
	c.wantMode("a new file", c.name("file"), 0o666&^c.umask())
}

func writeModeKept(c *caseT) {
	c.unix()
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o755, 0o700, 0o666, 0o777} {
		c.sh(`: >file; chmod "$1" file`, strconv.FormatUint(uint64(mode), 8))
		c.write(c.name("file"), "new")
		c.wantMode("a file that was overwritten", c.name("file"), mode)
		c.wantFile("a file that was overwritten", c.name("file"), "new")
	}
}

func writeModeGiven(c *caseT) {
	c.unix()
	for _, mode := range []fs.FileMode{0o777, 0o666, 0o600, 0o755, 0o444, 0o400} {
		name := c.name(fmt.Sprintf("%o", mode))
		c.writeMode(name, "x", mode)
		c.wantMode("a new file", name, mode)
		c.write(c.name("existing"), "x")
		c.writeMode(c.name("existing"), "y", mode)
		c.wantMode("an existing file", c.name("existing"), mode)
		c.wantFile("an existing file", c.name("existing"), "y")
		if err := c.e.Remove(c.ctx, c.name("existing"), env.RemoveOptions{}); err != nil {
			c.errorf("Remove: %v", err)
		}
	}
}

func writeThroughSymlink(c *caseT) {
	c.writeMode(c.name("sub", "file"), "old", 0o640)
	c.symlink("sub/file", c.name("relative"))
	c.symlink(c.abs("sub", "file"), c.name("absolute"))
	c.symlink("relative", c.name("twice"))
	c.symlink("sub", c.name("dir"))
	for _, name := range []string{"relative", "absolute", "twice", "dir/file"} {
		w, err := c.put(c.name(name), "by "+name, env.WriteOptions{})
		if err != nil || w.Created {
			c.errorf("writing through the symlink %s: %+v, error %v", name, w, err)
		}
		c.wantFile("the target of the symlink", c.name("sub", "file"), "by "+name)
		c.wantMode("the target of the symlink", c.name("sub", "file"), 0o640)
	}
	for _, name := range []string{"relative", "absolute", "twice", "dir"} {
		c.wantExit(name+" is still a symlink", c.exec(c.script(`test -L "$1"`, c.name(name))), 0)
	}
	c.wantNames("the directory of the file", c.name("sub"), "file")
}

func writeDanglingSymlink(c *caseT) {
	c.symlink("target", c.name("symlink"))
	w, err := c.put(c.name("symlink"), "text", env.WriteOptions{})
	if err != nil || !w.Created {
		c.errorf("writing through a dangling symlink: %+v, error %v; want Created", w, err)
	}
	c.wantFile("the target of the symlink", c.name("target"), "text")
	c.wantExit("it is still a symlink", c.exec(c.script(`test -L "$1"`, c.name("symlink"))), 0)
}

func writeReadOnlyFile(c *caseT) {
	c.unix()
	c.ordinaryUser()
	c.writeMode(c.name("file"), "old", 0o444)
	_, err := c.put(c.name("file"), "new", env.WriteOptions{})
	c.wantPathError("writing a file without the right to", err, "file", fs.ErrPermission)
	c.wantFile("the file", c.name("file"), "old")
	c.wantNames("the directory", c.dir, "file")
}

func writeFixedDirectory(c *caseT) {
	c.unix()
	c.ordinaryUser()
	c.writeMode(c.name("fixed", "file"), "old", 0o640)
	c.sh("chmod 555 fixed")
	c.cleanup(func() { c.exec(c.script(`chmod 755 "$1/fixed"`, c.dir)) })
	w, err := c.put(c.name("fixed", "file"), "new text", env.WriteOptions{})
	if want := (env.Written{Size: 8, InPlace: true}); err != nil || w != want {
		c.errorf("writing a file in a directory that cannot be changed: %+v, error %v; want %+v", w, err,
			want)
	}
	c.wantFile("the file", c.name("fixed", "file"), "new text")
	c.wantMode("the file", c.name("fixed", "file"), 0o640)
	_, err = c.put(c.name("fixed", "file"), "x", env.WriteOptions{})
	if err != nil {
		c.errorf("making it shorter: %v", err)
	}
	c.wantFile("the file, made shorter", c.name("fixed", "file"), "x")
}

func writeAtomic(c *caseT) {
	const n = 1 << 20
	c.write(c.name("file"), strings.Repeat("a", n))
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				got, err := c.get(c.name("file"))
				if err != nil {
					c.errorf("a reader during writes: %v", err)
					return
				}
				if len(got) != n || strings.Count(got, got[:1]) != n {
					c.errorf("a reader saw %d bytes, %d of them %q; want %d, all the same", len(got),
						strings.Count(got, got[:min(1, len(got))]), got[:min(1, len(got))], n)
					return
				}
			}
		})
	}
	// A slow environment has fewer writes, so that its case ends in time.
	for i, start := 0, time.Now(); i < 30 && (i < 3 || time.Since(start) < 20*time.Second); i++ {
		if w, err := c.put(c.name("file"), strings.Repeat(string(rune('a'+i%26)), n),
			env.WriteOptions{}); err != nil || w.InPlace {
			c.errorf("a write during reads: %+v, error %v", w, err)
		}
	}
	done.Store(true)
	wg.Wait()
	c.wantNames("the directory", c.dir, "file")
}

func writeOpenReader(c *caseT) {
	old := randomText(1 << 20)
	c.write(c.name("file"), old)
	f, err := c.e.Open(c.ctx, c.name("file"))
	if err != nil {
		c.fatalf("Open: %v", err)
	}
	head := make([]byte, 1000)
	_, err = io.ReadFull(f, head)
	c.write(c.name("file"), "new")
	rest, restErr := io.ReadAll(f)
	if err := errors.Join(err, restErr, f.Close()); err != nil {
		c.errorf("reading a file that was replaced meanwhile: %v", err)
	}
	c.equal("a file that was replaced while it was read", string(head)+string(rest), old)
	c.wantFile("the file", c.name("file"), "new")
}

func writeConcurrent(c *caseT) {
	const n = 200_000
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := c.put(c.name("file"), strings.Repeat(string(rune('a'+i)), n),
				env.WriteOptions{}); err != nil {
				c.errorf("one of 20 writers: %v", err)
			}
		})
	}
	wg.Wait()
	got := c.read(c.name("file"))
	if len(got) != n || strings.Count(got, got[:1]) != n {
		c.errorf("after 20 writers the file has %d bytes that are not those of one of them", len(got))
	}
	c.wantNames("the directory", c.dir, "file")
}

func writeFailingReader(c *caseT) {
	broken := errors.New("the source broke")
	source := func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), iotest.ErrReader(broken))
	}
	c.writeMode(c.name("file"), "old", 0o640)
	for _, name := range []string{c.name("file"), c.name("new")} {
		_, err := c.e.WriteFile(c.ctx, name, source(), env.WriteOptions{})
		c.is("a write whose reader fails", err, broken)
		c.wantPathError("a write whose reader fails", err, name)
	}
	c.wantFile("the file after a write that failed", c.name("file"), "old")
	c.wantMode("the file after a write that failed", c.name("file"), 0o640)
	c.wantNames("the directory after two writes that failed", c.dir, "file")
}

func writeCancelled(c *caseT) {
	c.write(c.name("file"), "old")
	ctx, cancel := context.WithCancelCause(c.ctx)
	source := io.MultiReader(strings.NewReader("new"), readerFunc(func([]byte) (int, error) {
		cancel(errEnough)
		return 0, io.EOF
	}))
	_, err := c.e.WriteFile(ctx, c.name("file"), io.MultiReader(source, strings.NewReader("more")),
		env.WriteOptions{})
	c.is("a write whose context ends", err, context.Canceled)
	c.wantFile("the file after a write that was cancelled", c.name("file"), "old")
	c.wantNames("the directory after a write that was cancelled", c.dir, "file")
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func writeMustNotExist(c *caseT) {
	opts := env.WriteOptions{MustNotExist: true}
	w, err := c.put(c.name("sub", "file"), "first", opts)
	if err != nil || !w.Created {
		c.errorf("a new file: %+v, error %v", w, err)
	}
	_, err = c.put(c.name("sub", "file"), "second", opts)
	c.wantPathError("a file that exists", err, "file", fs.ErrExist)
	c.wantFile("the file", c.name("sub", "file"), "first")
	c.wantNames("the directory", c.name("sub"), "file")
}

func writeMustNotExistRace(c *caseT) {
	c.raceWriters(env.WriteOptions{MustNotExist: true}, fs.ErrExist)
}

// raceWriters has 20 writers fulfil the same condition, which only one can.
func (c *caseT) raceWriters(opts env.WriteOptions, loser error) {
	var mu sync.Mutex
	var winners []string
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			data := strings.Repeat(string(rune('a'+i)), 10_000)
			_, err := c.put(c.name("file"), data, opts)
			if err != nil {
				c.wantPathError("a writer that came too late", err, "file", loser)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			winners = append(winners, data)
		})
	}
	wg.Wait()
	if len(winners) != 1 {
		c.fatalf("%d of 20 concurrent writers won, want 1", len(winners))
	}
	c.wantFile("the file", c.name("file"), winners[0])
	c.wantNames("the directory", c.dir, "file")
}

func hash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

func writeIfSHA256(c *caseT) {
	c.write(c.name("file"), "old")
	_, err := c.put(c.name("file"), "new", env.WriteOptions{IfSHA256: hash("other")})
	c.wantPathError("a file with another content", err, "file", env.ErrChanged)
	c.wantFile("the file", c.name("file"), "old")
	_, err = c.put(c.name("missing"), "new", env.WriteOptions{IfSHA256: hash("")})
	c.wantPathError("a missing file", err, "missing", fs.ErrNotExist)
	c.wantNames("the directory", c.dir, "file")
	if _, err = c.put(c.name("file"), "new", env.WriteOptions{IfSHA256: hash("old")}); err != nil {
		c.errorf("a file with the required content: %v", err)
	}
	c.wantFile("the file", c.name("file"), "new")
}

// writeIfSHA256Late changes the file while the new content is being read.
func writeIfSHA256Late(c *caseT) {
	c.write(c.name("file"), "old")
	meanwhile := readerFunc(func([]byte) (int, error) {
		if _, err := c.put(c.name("file"), "meanwhile", env.WriteOptions{}); err != nil {
			c.errorf("a write during another one: %v", err)
		}
		return 0, io.EOF
	})
	c.within("a write during another one", func() {
		_, err := c.e.WriteFile(c.ctx, c.name("file"), io.MultiReader(strings.NewReader("new"),
			meanwhile), env.WriteOptions{IfSHA256: hash("old")})
		c.wantPathError("a file that changed while the reader gave the new content", err, "file",
			env.ErrChanged)
	})
	c.wantFile("the file", c.name("file"), "meanwhile")
}

func writeIfSHA256Race(c *caseT) {
	c.write(c.name("file"), "old")
	c.raceWriters(env.WriteOptions{IfSHA256: hash("old")}, env.ErrChanged)
}
