package envtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

func readFilesCases() []testCase {
	return []testCase{
		{name: "contents", rule: ruleReadFiles, run: readFilesContents},
		{name: "none", rule: ruleReadFiles, run: readFilesNone},
		{name: "unreadable", rule: ruleReadFiles, run: readFilesUnreadable},
		{name: "special_files", rule: ruleSpecial, run: readFilesSpecial},
		{name: "names", rule: ruleReadFiles, run: readFilesNames},
		{name: "200_names", rule: ruleReadFiles, run: readFilesMany},
		{name: "limit", rule: ruleReadFiles, run: readFilesLimit},
		{name: "limit_of_all", rule: ruleReadFiles, run: readFilesTotal},
		{name: "canceled", rule: ruleCancel, run: readFilesCanceled},
		{name: "closed", rule: ruleClosed, run: readFilesClosed, fresh: true},
	}
}

// wantContents records a failure unless contents equal the results of ReadFile for each of names.
func (c *caseT) wantContents(
	what string, e env.Environment, names []string, limit int64,
) []env.FileContent {
	contents, err := env.ReadFiles(c.ctx, e, names, limit)
	what = "ReadFiles" + what
	if err != nil || len(contents) != len(names) {
		c.fatalf("%s of %d files: %d contents, error %v", what, len(names), len(contents), err)
	}
	for i, got := range contents {
		data, err := env.ReadFile(c.ctx, plain{c.e}, names[i], limit)
		if got.Name != names[i] {
			c.errorf("%s: content %d is that of %q, want %q", what, i, got.Name, names[i])
		}
		c.equal(fmt.Sprintf("%s: %.100q", what, names[i]), string(got.Data), string(data))
		if got.Err != nil && got.Data != nil {
			c.errorf("%s: %.100q has data and the error %v", what, names[i], got.Err)
		}
		switch {
		case err == nil && got.Err != nil:
			c.errorf("%s: %.100q has the error %v, want none", what, names[i], got.Err)
		case err != nil:
			c.wantPathError(fmt.Sprintf("%s: %.100q", what, names[i]), got.Err, names[i], condition(err))
		}
	}
	return contents
}

// condition returns the condition that callers branch on in an error of a file.
func condition(err error) error {
	for _, is := range []error{
		fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid, env.ErrIsDir, env.ErrNotDir, env.ErrNotRegular,
		env.ErrTooLarge,
	} {
		if errors.Is(err, is) {
			return is
		}
	}
	return err
}

func readFilesContents(c *caseT) {
	c.write(c.name("text"), "line\r\nline")
	c.write(c.name("empty"), "")
	c.write(c.name("bytes"), allBytes)
	c.write(c.name("longer"), randomText(300<<10))
	c.both(func(what string, e env.Environment) {
		got := c.wantContents(what, e, []string{
			c.name("longer"), c.name("text"), c.abs("bytes"), c.name("empty"), c.name("text"),
			c.name("text"),
		}, 0)
		c.equal("ReadFiles"+what, string(got[1].Data), "line\r\nline")
		if got[3].Data == nil {
			c.errorf("ReadFiles%s: an empty file has no data", what)
		}
	})
}

func readFilesNone(c *caseT) {
	c.both(func(what string, e env.Environment) {
		for _, names := range [][]string{nil, {}} {
			c.wantContents(what, e, names, 0)
		}
	})
}

func readFilesUnreadable(c *caseT) {
	c.write(c.name("file"), "content")
	c.write(c.name("sub/file"), "content")
	c.both(func(what string, e env.Environment) {
		c.wantContents(what, e, []string{
			c.name("missing"), c.name("sub"), c.name("file"), c.name("missing/file"),
			c.name("file/below"), "", c.name("nul\x00"), c.name("file"),
		}, 0)
	})
}

func readFilesSpecial(c *caseT) {
	c.unix()
	c.tool("mkfifo")
	c.sh(`mkfifo pipe; ln -s pipe to-pipe; echo text >file; ln -s file good; ln -s nowhere dangling`)
	c.both(func(what string, e env.Environment) {
		c.within("ReadFiles"+what, func() {
			got := c.wantContents(what, e, []string{
				c.name("pipe"), c.name("good"), c.name("to-pipe"),
				"/dev/zero", c.name("dangling"),
			}, 0)
			for _, i := range []int{0, 2, 3} {
				c.is("ReadFiles"+what+" of "+got[i].Name, got[i].Err, env.ErrNotRegular)
			}
		})
	})
}

func readFilesNames(c *caseT) {
	c.unix()
	var names []string
	for i, name := range []string{
		"with space", "new\nline", "-dash", `quo"te`, "tab\t", "世界",
		"\xff\xfe", "\xc3\x28", "\ufffd", `\xff`, "*",
	} {
		if c.e.Info().OS == "darwin" && strings.ToValidUTF8(name, "") != name {
			continue // File systems of this system hold Unicode only.
		}
		names = append(names, c.name(name))
		c.write(c.name(name), fmt.Sprint(i))
	}
	c.both(func(what string, e env.Environment) { c.wantContents(what, e, names, 0) })
}

func readFilesMany(c *caseT) {
	var names []string
	for i := range 200 {
		names = append(names, c.name(fmt.Sprint(i%150)))
		if i < 150 && i%10 != 3 {
			c.write(names[i], strings.Repeat("x", i)+fmt.Sprint(i))
		}
	}
	c.both(func(what string, e env.Environment) { c.wantContents(what, e, names, 0) })
}

func readFilesLimit(c *caseT) {
	c.write(c.name("small"), randomText(1000))
	c.write(c.name("large"), randomText(1001))
	c.both(func(what string, e env.Environment) {
		got := c.wantContents(what, e, []string{c.name("large"), c.name("small")}, 1000)
		c.is("ReadFiles"+what+" of 1001 bytes with the limit 1000", got[0].Err, env.ErrTooLarge)
		if got[1].Err != nil {
			c.errorf("ReadFiles%s of 1000 bytes with the limit 1000: %v", what, got[1].Err)
		}
	})
}

// readFilesTotal requests one file again and again, more often than MaxReadFiles allows.
func readFilesTotal(c *caseT) {
	const size = 5 << 20
	fit := env.MaxReadFiles / size
	c.write(c.name("file"), randomText(size))
	c.write(c.name("rest"), randomText(env.MaxReadFiles-fit*size))
	names := make([]string, 0, fit+5)
	for range fit + 2 {
		names = append(names, c.name("file"))
	}
	names = append(names, c.name("rest"), c.name("missing"), c.name("file"))
	c.both(func(what string, e env.Environment) {
		got, err := env.ReadFiles(c.ctx, e, names, size)
		if err != nil || len(got) != len(names) {
			c.fatalf("ReadFiles%s: %d contents, error %v", what, len(got), err)
		}
		for i, f := range got {
			switch {
			case names[i] == c.name("missing"):
				c.is(fmt.Sprintf("ReadFiles%s of a missing file beyond the limit", what), f.Err, fs.ErrNotExist)
			case i < fit || names[i] == c.name("rest"):
				if f.Err != nil || len(f.Data) == 0 {
					c.errorf("ReadFiles%s: file %d of %d that fit has %d bytes, error %v", what, i, fit,
						len(f.Data), f.Err)
				}
			default:
				c.wantPathError(fmt.Sprintf("ReadFiles%s: file %d, beyond the limit", what, i), f.Err,
					f.Name, env.ErrTooLarge)
			}
		}
	})
}

func readFilesCanceled(c *caseT) {
	c.write(c.name("file"), "content")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(c.ctx)
	cancel(cause)
	c.both(func(what string, e env.Environment) {
		contents, err := env.ReadFiles(ctx, e, []string{c.name("file"), c.name("missing")}, 0)
		c.is("ReadFiles"+what+" with a context that is over", err, context.Canceled)
		c.is("ReadFiles"+what+" with a context that is over", err, cause)
		if contents != nil {
			c.errorf("ReadFiles%s with a context that is over gives %v", what, contents)
		}
	})
}

func readFilesClosed(c *caseT) {
	c.write(c.name("file"), "content")
	if err := c.e.Close(); err != nil {
		c.errorf("Close: %v", err)
	}
	c.both(func(what string, e env.Environment) {
		contents, err := env.ReadFiles(c.ctx, e, []string{c.name("file"), c.name("missing")}, 0)
		c.is("ReadFiles"+what, err, fs.ErrClosed)
		if contents != nil {
			c.errorf("ReadFiles%s after Close gives %v", what, contents)
		}
	})
}
