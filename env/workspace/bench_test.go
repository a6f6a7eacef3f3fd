package workspace_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// BenchmarkWorkspace uploads a repository of 20,000 files and applies changes.
func BenchmarkWorkspace(b *testing.B) {
	needGit(b)
	host := b.TempDir()
	git(b, host, "init", "-q")
	files := tree{}
	for i := range 20_000 {
		files[fmt.Sprintf("d%d/e%d/f%d.txt", i%20, i%200,
			i)] = text(strings.Repeat(fmt.Sprintln("some text", i), 100))
	}
	put(b, host, files)
	commit(b, host, "first")
	took := map[string]time.Duration{}
	timed := func(step string, do func() error) {
		b.Helper()
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took[step] += time.Since(start)
	}
	rounds := 0
	for b.Loop() {
		rounds++
		var w *workspace.Workspace
		var c *workspace.Changes
		e, envDir := newEnvironment(b)
		timed("open", func() (err error) {
			w, err = workspace.Open(b.Context(), host, workspace.Options{})
			return err
		})
		timed("upload", func() error { return w.Upload(b.Context(), e) })
		put(b, envDir, tree{
			"d1/e1/f1.txt": text(fmt.Sprintln("edited", rounds)),
			"new":          text(fmt.Sprintln(rounds)),
		})
		timed("changes", func() (err error) {
			c, err = w.Changes(b.Context(), e)
			return err
		})
		timed("patch", func() error {
			_, err := c.WritePatch(b.Context(), io.Discard)
			return err
		})
		timed("close", func() error { return errors.Join(c.Close(), w.Close()) })
	}
	for step, d := range took {
		b.ReportMetric(d.Seconds()/float64(rounds), step+"-s/op")
	}
}
