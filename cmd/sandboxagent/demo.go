package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // for the repository and the script
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

//go:embed demo/repository.txtar
var demoRepository []byte

//go:embed demo/script.yaml
var demoScript []byte

const (
	demoTask  = "Make the tests of this module pass. Do not change the tests."
	demoCheck = "go test ./..."
	// demoLines bounds the lines of each result that are shown.
	demoLines = 12
)

// demoVars override the Go settings of the user: the repository needs the standard library only.
var demoVars = [...]string{
	"GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GO111MODULE=on", "CGO_ENABLED=0",
	"GOOS=", "GOARCH=",
}

func (p *program) demoCommand() *cli.Command {
	return &cli.Command{
		Usage:     "watch the agent fix a small Go repository; needs go, but no API key and no network",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent demo
sandboxagent demo --env docker`,
		Description: `
Copies a broken repository to a temporary directory, which is removed at the end. The agent is
the real one; the model is a script behind a local HTTP server. Prints the change as a diff to
standard output.`,
		Flags:  demoFlags(),
		Action: p.action(p.demo),
	}
}

// demoSupport describes the demonstration in a backend.
type demoSupport struct {
	// flags are the names of the flags of the backend that the demonstration has.
	flags []string
	// missingGo completes the message that the environment has no go command.
	missingGo string
	// prepare changes the settings of the backend and cfg for the repository in cfg.dir, which is
	// below dir. remove, which may be nil, removes the files that it created.
	prepare func(ctx context.Context, cfg *openConfig, dir string) (remove func() error, err error)
}

// demoFlags are the environmentFlags of the demonstration.
func demoFlags() []cli.Flag {
	names := []string{"env"}
	for _, b := range backends(nil) {
		names = append(names, b.demo().flags...)
	}
	return slices.DeleteFunc(environmentFlags(groupCommand, ""), func(f cli.Flag) bool {
		return !slices.Contains(names, f.Names()[0])
	})
}

// demo is the command demo.
func (p *program) demo(ctx context.Context, c *cli.Context) (code int, err error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	b, err := p.parseBackend(c)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "sandboxagent-demo-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
	}()
	e, err := p.openDemo(ctx, b, dir)
	if err != nil {
		return 0, err
	}
	j := &job{
		task: demoTask, env: e, sessions: filepath.Join(dir, "sessions"),
		patch: patchSettings{file: filepath.Join(dir, "patch")}, outputs: demoLines,
	}
	server, err := j.serveScript(demoScript)
	if err != nil {
		return 0, errors.Join(err, e.close())
	}
	defer server.Close()
	fmt.Fprintf(p.std.err, "Task: %s\n", demoTask)
	record, _ := p.work(ctx, j)
	if record.Error != "" {
		p.printLine(record.Error)
		return record.ExitCode, nil
	}
	fmt.Fprintf(p.std.err, "\n%s\n\n", record.Text)
	diff, err := os.ReadFile(record.Patch)
	if err == nil && len(diff) == 0 {
		err = errors.New("the demonstration changed no file")
	}
	if err == nil {
		_, err = io.Copy(p.std.out, bytes.NewReader(diff))
	}
	return record.ExitCode, err
}

// openDemo unpacks the repository into dir and opens an environment with Go for it.
func (p *program) openDemo(ctx context.Context, b backend, dir string) (_ *environment, err error) {
	repository := filepath.Join(dir, "roman")
	for _, f := range txtar.Parse(demoRepository).Files {
		name := filepath.Join(repository, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, f.Data, 0o666); err != nil {
			return nil, err
		}
	}
	s := environmentSettings{backend: b, copyTree: true}
	s.config = openConfig{
		dir: repository, vars: slices.Clone(demoVars[:]), notify: p.notify, noteOnce: p.noteOnce,
	}
	support := b.demo()
	remove, err := support.prepare(ctx, &s.config, dir)
	if err != nil {
		return nil, err
	}
	e, err := p.open(ctx, s)
	if err != nil {
		if remove != nil {
			err = errors.Join(err, remove())
		}
		return nil, err
	}
	e.cleanup = remove
	if err := checkGo(ctx, e.plain, support.missingGo); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// checkGo returns an error if the go command does not work in e.
func checkGo(ctx context.Context, e env.Environment, missing string) error {
	version := env.Command{Argv: []string{"go", "version"}}
	_, res, err := env.Output(ctx, e, version, env.OutputOptions{})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("the demonstration needs the go command, " + missing)
	case err == nil && res.ExitCode != 0:
		return fmt.Errorf("the demonstration needs a working go command: go version: exit code %d",
			res.ExitCode)
	}
	return err
}

// demoCaches returns environment variables that make go write to the directories writable of the
// host: below dir, but for a build cache that exists already.
func demoCaches(dir string) (vars, writable []string, err error) {
	add := func(variable, name string) {
		vars, writable = append(vars, variable+"="+name), append(writable, name)
	}
	add("GOTMPDIR", filepath.Join(dir, "tmp")) // removed with dir, also if go is killed
	add("GOCACHE", cmp.Or(goCache(), filepath.Join(dir, "cache")))
	if home, err := os.UserHomeDir(); err != nil || home == "" {
		add("GOPATH", filepath.Join(dir, "gopath"))
	}
	for _, name := range writable {
		err = errors.Join(err, os.MkdirAll(name, 0o700))
	}
	return vars, writable, err
}

// goCache returns the directory of Go's build cache; empty if it cannot be created.
func goCache() string {
	name := os.Getenv("GOCACHE")
	if cache, err := os.UserCacheDir(); name == "" && err == nil {
		name = filepath.Join(cache, "go-build")
	}
	if !filepath.IsAbs(name) || os.MkdirAll(name, 0o700) != nil {
		return ""
	}
	return name
}

// serveScript starts a server that plays the script data and configures the job to use it as its
// model. The caller closes the server.
func (j *job) serveScript(data []byte) (*llmtest.Server, error) {
	script, err := replay.ParseScript(data, "demo/script.yaml")
	if err != nil {
		return nil, err
	}
	brain, err := llmtest.Play(script)
	if err != nil {
		return nil, err
	}
	server, err := llmtest.Start(brain)
	if err != nil {
		return nil, err
	}
	client, err := openai.New(openai.Config{
		BaseURL: server.URL(), APIKey: server.Key(),
		HTTPClient: server.Client(),
	})
	if err != nil {
		server.Close()
		return nil, err
	}
	j.config = agent.Config{
		Client:  client,
		Profile: profile.OpenAI(script.Model),
		Env:     j.env.wrapped,
		Store:   session.OnDisk(j.sessions),
		Verify:  agent.Verify{Command: demoCheck},
		Log:     j.env.log,
	}
	return server, nil
}
