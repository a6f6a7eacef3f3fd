package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env"
)

func infoCases() []testCase {
	return []testCase{
		{name: "plausible", rule: ruleInfo, run: infoPlausible},
		{name: "does_not_change", rule: ruleInfo, run: infoUnchanged},
		{name: "system", rule: ruleInfo, run: infoSystem},
		{name: "workdir", rule: ruleInfo, run: infoWorkDir},
		{name: "shell", rule: ruleInfo, run: infoShell},
		{name: "no_secret_of_the_host", rule: ruleSecrets, run: infoNoSecrets, alone: true},
	}
}

func infoPlausible(c *caseT) {
	info := c.e.Info()
	for what, s := range map[string]string{
		"Backend": info.Backend, "OS": info.OS, "Arch": info.Arch,
		"WorkDir": info.WorkDir,
	} {
		if s == "" || strings.TrimSpace(s) != s {
			c.errorf("%s is %q", what, s)
		}
	}
	if info.OS != strings.ToLower(info.OS) || info.Arch != strings.ToLower(info.Arch) {
		c.errorf("OS %q and Arch %q are not as the Go toolchain names them", info.OS, info.Arch)
	}
	if abs := path.IsAbs(info.WorkDir) || info.OS == "windows"; !abs ||
		path.Clean(info.WorkDir) != info.WorkDir || strings.Contains(info.WorkDir, `\`) {
		c.errorf("WorkDir %q is not a clean, absolute, slash-separated name", info.WorkDir)
	}
	if (len(info.Shell) == 0) != (info.NoShell != "") {
		c.errorf("Shell is %q and NoShell %q; exactly one of them must be set", info.Shell, info.NoShell)
	}
	seen := make(map[env.GuaranteeName]bool)
	for _, g := range info.Guarantees {
		if seen[g.Name] {
			c.errorf("the guarantee %q is stated twice", g.Name)
		}
		seen[g.Name] = true
		switch g.Strength {
		case env.Enforced, env.BestEffort:
			if g.By == "" {
				c.errorf("the guarantee %q has no By", g.Name)
			}
		case env.Absent:
		default:
			c.errorf("the guarantee %q has the strength %q", g.Name, g.Strength)
		}
	}
}

func infoUnchanged(c *caseT) {
	before := c.e.Info()
	c.exec(c.script("cd /"))
	if after := c.e.Info(); !reflect.DeepEqual(before, after) {
		c.errorf("Info was %+v and is %+v", before, after)
	}
}

func infoSystem(c *caseT) {
	c.unix()
	c.tool("uname")
	info := c.e.Info()
	if got := strings.ToLower(strings.TrimSpace(c.sh("uname -s"))); got != info.OS {
		c.errorf("OS is %q, but uname -s prints %q", info.OS, got)
	}
	machine := strings.TrimSpace(c.sh("uname -m"))
	arch, ok := map[string]string{
		"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64",
		"i686": "386", "riscv64": "riscv64", "s390x": "s390x", "ppc64le": "ppc64le",
	}[machine]
	// A 64-bit kernel runs 32-bit programs as well.
	if ok && arch != info.Arch && machine != "x86_64" && machine != "aarch64" {
		c.errorf("Arch is %q, but uname -m prints %q", info.Arch, machine)
	}
}

func infoWorkDir(c *caseT) {
	dir := c.e.Info().WorkDir
	got := strings.TrimSuffix(c.exec(c.script("pwd -P")).stdout, "\n")
	want := strings.TrimSuffix(c.exec(c.script(`cd -- "$1" && pwd -P`, dir)).stdout, "\n")
	if got == "" || got != want {
		c.errorf("a command runs in %q, but WorkDir is %q, which is %q", got, dir, want)
	}
	if info, err := c.e.Stat(c.ctx, dir); err != nil || !info.IsDir() {
		c.errorf("Stat of WorkDir %q: %v, error %v; want a directory", dir, info, err)
	}
}

func infoShell(c *caseT) {
	info := c.e.Info()
	if len(info.Shell) == 0 {
		c.missing("the environment has no shell: %s", info.NoShell)
	}
	r := c.exec(env.Command{Argv: append(append([]string(nil), info.Shell...), "echo out && exit 3")})
	c.wantExit(fmt.Sprintf("a script run by %q", info.Shell), r, 3)
	c.equal("its output", strings.TrimSpace(r.stdout), "out")
}

// infoNoSecrets sets variables of this process, so it runs alone. The environment is made
// afterwards, because it may take a copy of the variables when it is made.
func infoNoSecrets(c *caseT) {
	const canary = "envtest-canary-value"
	for _, name := range []string{
		"ENVTEST_API_KEY", "envtest_secret", "ENVTEST_ACCESS_TOKEN",
		"ENVTEST_DB_PASSWORD", "ENVTEST_CREDENTIAL", "ENVTEST_SIGNING_KEY", "ENVTESTPASS",
		"ENVTEST_PAT", "ENVTEST_AUTH_CONFIG", "envtestPwd",
	} {
		if err := os.Setenv(name, canary); err != nil {
			c.fatalf("setting a variable of this process: %v", err)
		}
		c.cleanup(func() { _ = os.Unsetenv(name) }) // It was set, so it can be unset.
	}
	p := c.another()
	c.tool("env")
	r := c.execIn(c.ctx, p, env.Command{Argv: []string{"env"}})
	c.wantExit("env", r, 0)
	for line := range strings.Lines(r.stdout) {
		if strings.Contains(line, canary) {
			c.errorf("a command sees %s", strings.TrimSpace(line))
		}
	}
}

func lifeCases() []testCase {
	return []testCase{
		{name: "close_twice", rule: ruleClose, run: lifeCloseTwice, fresh: true},
		{name: "close_concurrently", rule: ruleClose, run: lifeCloseConcurrently, fresh: true},
		{name: "close_during_exec", rule: ruleCloseEnds, run: lifeCloseDuringExec, fresh: true},
		{name: "close_during_write", rule: ruleCloseEnds, run: lifeCloseDuringWrite, fresh: true},
		{name: "close_during_copy_out", rule: ruleOutNames, run: lifeCloseDuringCopyOut, fresh: true},
		{name: "use_after_close", rule: ruleClosed, run: lifeUseAfterClose, fresh: true},
		{name: "everything_at_once", rule: ruleConcurrent, run: lifeEverything},
	}
}

func (c *caseT) closeNow() {
	c.within("Close", func() {
		if err := c.e.Close(); err != nil {
			c.errorf("Close gives %v", err)
		}
	})
}

func lifeCloseTwice(c *caseT) {
	c.closeNow()
	c.closeNow()
	c.closeNow()
}

func lifeCloseConcurrently(c *caseT) {
	var wg sync.WaitGroup
	c.within("one of ten calls of Close", func() {
		for range 10 {
			wg.Go(func() {
				if err := c.e.Close(); err != nil {
					c.errorf("one of ten calls of Close gives %v", err)
				}
			})
		}
		wg.Wait()
	})
}

func lifeCloseDuringExec(c *caseT) {
	cmd, m := c.sleepers(2, `sleep "$1" & trap '' TERM; sleep "$2"`)
	result := make(chan ran, 1)
	go func() { result <- c.exec(cmd) }()
	c.alive(m)
	c.closeSeen(m)
	c.wantClosed(result)
}

// wantClosed waits for the result of a running command and records a failure unless Close ended it.
func (c *caseT) wantClosed(result <-chan ran) {
	c.within("Exec after Close", func() {
		if r := <-result; !errors.Is(r.err, fs.ErrClosed) {
			c.errorf("Exec gives %+v, error %v after Close; want fs.ErrClosed", r.Result, r.err)
		}
	})
}

func lifeCloseDuringWrite(c *caseT) {
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	source := readerFunc(func(p []byte) (int, error) {
		once.Do(func() { close(started) })
		<-release
		return 0, io.EOF
	})
	result := make(chan error, 1)
	go func() {
		_, err := c.e.WriteFile(c.ctx, c.name("file"), source, env.WriteOptions{})
		result <- err
	}()
	<-started
	c.closeNow()
	close(release)
	c.within("WriteFile after Close", func() {
		if err := <-result; !errors.Is(err, fs.ErrClosed) {
			c.errorf("WriteFile gives error %v after Close, want fs.ErrClosed", err)
		}
	})
}

func lifeCloseDuringCopyOut(c *caseT) {
	c.in(c.name("a"), tarFile("1", randomText(8<<20)), tarFile("2", "x"))
	r, err := c.e.CopyOut(c.ctx, c.name("a"))
	if err != nil {
		c.fatalf("CopyOut: %v", err)
	}
	head := make([]byte, 2000)
	_, err = io.ReadFull(r, head)
	c.closeNow()
	c.within("reading after Close", func() {
		rest, restErr := unpack(io.MultiReader(strings.NewReader(string(head)), r))
		whole := len(rest) >= 2 && rest[len(rest)-1] == tarFile("2", "x").line()
		if err == nil && restErr == nil && !whole {
			c.errorf("a stream ended early, with %d entries, as if it were whole", len(rest))
		}
		_ = r.Close()
	})
}

func lifeUseAfterClose(c *caseT) {
	c.write(c.name("file"), "x")
	before := c.e.Info()
	c.closeNow()
	for _, m := range fileMethods {
		c.within(m.name+" after Close", func() {
			err := m.call(c.ctx, c.e, c.name("file"))
			c.is(m.name+" after Close", err, fs.ErrClosed)
		})
	}
	_, err := c.e.Exec(c.ctx, env.Command{Argv: []string{"sh", "-c", "exit 0"}})
	c.is("Exec after Close", err, fs.ErrClosed)
	if after := c.e.Info(); !reflect.DeepEqual(before, after) {
		c.errorf("Info was %+v and is %+v after Close", before, after)
	}
}

// lifeEverything calls all methods at the same time, for the race detector.
func lifeEverything(c *caseT) {
	c.write(c.name("shared", "file"), "x")
	cmd := c.script("exit 0")
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				name := c.name(fmt.Sprintf("dir-%d", i), fmt.Sprint(j))
				r := c.execIn(ctx, c.e, cmd)
				_, writeErr := c.e.WriteFile(ctx, name, strings.NewReader("x"), env.WriteOptions{})
				_, readErr := c.get(name)
				_, statErr := c.e.Stat(ctx, c.name("shared", "file"))
				_, dirErr := c.e.ReadDir(ctx, c.name("shared"))
				inErr := c.e.CopyIn(ctx, c.name("shared", fmt.Sprint(i)), archive(tarFile("a", "x")))
				_, outErr := c.out(c.name("shared", fmt.Sprint(i)))
				removeErr := c.e.Remove(ctx, name, env.RemoveOptions{})
				_ = c.e.Info()
				if err := errors.Join(r.err, writeErr, readErr, statErr, dirErr, inErr, outErr,
					removeErr); err != nil {
					c.errorf("one of many calls at the same time: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
