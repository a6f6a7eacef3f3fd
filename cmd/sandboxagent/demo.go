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
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	envtransfer "github.com/sandboxagent/sandboxagent/env/transfer"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

//go:embed demo/repository.txtar
var demoRepository []byte

//go:embed demo/script.yaml
var demoScript []byte

const (
	demoTask  = "Make the tests of this module pass. Do not change the tests."
	demoCheck = "go test ./..."
	// demoImage is the image of a container that has Go.
	demoImage = "sandboxagent-go:latest"
)

// demoVars keep the settings of the user's Go from mattering: the repository needs the standard library only.
var demoVars = [...]string{
	"GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GO111MODULE=on", "CGO_ENABLED=0", "GOOS=", "GOARCH=",
}

func (p *program) demoCommand() *cli.Command {
	return &cli.Command{
		Name:      "demo",
		Usage:     "watch the agent mend a small Go repository; needs go, but neither a key nor a network",
		ArgsUsage: "[flags]",
		Description: `A broken repository is copied to a temporary folder, which is removed in the end. The agent is the real one;
the model is a script behind a local HTTP server. The change goes to standard output as a diff.`,
		Flags:  demoFlags(),
		Action: p.action(p.demo),
	}
}

// demoFlags are the flags of an environment that matter for a folder of the program's own.
func demoFlags() []cli.Flag {
	wanted := []string{"env", "image", "pull", "platform", "user", "runtime", "helper", "host", "identity", "known-hosts", "accept-new-host-key"}
	return slices.DeleteFunc(environmentFlags(""), func(f cli.Flag) bool { return !slices.Contains(wanted, f.Names()[0]) })
}

// demo is the command demo.
func (p *program) demo(ctx context.Context, c *cli.Context) (code int, err error) {
	if c.Args().Present() {
		return 0, usagef("demo takes no arguments")
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
	options, err := p.demoOptions(c)
	if err != nil {
		return 0, err
	}
	place, err := p.openDemo(ctx, c.String("env"), options, dir)
	if err != nil {
		return 0, err
	}
	j := &job{
		task: demoTask, place: place, sessions: filepath.Join(dir, "sessions"), patch: patchSettings{file: filepath.Join(dir, "patch")}, outputs: true,
	}
	server, err := j.serveScript(demoScript)
	if err != nil {
		return 0, joinClose(err, place)
	}
	defer server.Close()
	fmt.Fprintf(p.std.err, "Task: %s\n", demoTask)
	record := p.work(ctx, j)
	if record.Error != "" {
		p.say(record.Error)
		return record.ExitCode, nil
	}
	fmt.Fprintf(p.std.err, "\n%s\n\n", sanitize(record.Text))
	diff, err := os.ReadFile(record.Patch)
	if err == nil && len(diff) == 0 {
		err = errors.New("nothing was changed")
	}
	if err == nil {
		_, err = io.Copy(p.std.out, bytes.NewReader(diff))
	}
	return record.ExitCode, err
}

// demoOptions reads the demoFlags.
func (p *program) demoOptions(c *cli.Context) (o backendOptions, err error) {
	if err := onlyFor(c, c.String("env")); err != nil {
		return o, err
	}
	if o.remote, err = readRemoteFlags(c); err != nil {
		return o, err
	}
	if o.container, err = readContainerFlags(c); err != nil {
		return o, err
	}
	o.target, err = p.readHostFlags(c)
	return o, err
}

// openDemo unpacks the repository into dir and opens an environment in it that has Go.
func (p *program) openDemo(ctx context.Context, backend string, options backendOptions, dir string) (*workplace, error) {
	work := filepath.Join(dir, "roman")
	for _, f := range txtar.Parse(demoRepository).Files {
		name := filepath.Join(work, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, f.Data, 0o666); err != nil {
			return nil, err
		}
	}
	options.dir, options.vars = work, demoVars[:]
	switch backend {
	case "local":
		vars, folders, err := demoFolders(dir)
		if err != nil {
			return nil, err
		}
		options.vars = slices.Concat(options.vars, vars)
		options.sandbox = sandboxOptions{mode: sandboxAuto, Sandbox: env.Sandbox{Write: folders}}
	case "docker":
		options.container.Image = cmp.Or(options.container.Image, demoImage)
	case "ssh":
		return p.openDemoThere(ctx, options)
	}
	place, err := p.open(ctx, environmentSettings{backend: backend, options: options, copyTree: true})
	if err != nil {
		return nil, err
	}
	return needGo(ctx, place, backend)
}

// openDemoThere is openDemo on a host: the repository goes to a temporary folder there, which is removed with the place.
func (p *program) openDemoThere(ctx context.Context, options backendOptions) (_ *workplace, err error) {
	source := options.dir
	options.dir = ""
	home, err := openSSH(ctx, options)
	if err != nil {
		return nil, err
	}
	folder := ""
	remove := func() error {
		var err error
		if folder != "" {
			err = home.Remove(context.WithoutCancel(ctx), folder, env.RemoveOptions{Recursive: true})
		}
		return errors.Join(err, home.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	made, res, err := env.Output(ctx, home, env.Command{Argv: []string{"mktemp", "-d", "/tmp/sandboxagent-demo-XXXXXX"}}, env.OutputOptions{})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("mktemp ends with status %d: %s", res.ExitCode, oneLine(string(made.Stderr.Bytes())))
	}
	if err != nil {
		return nil, err
	}
	folder = strings.TrimSuffix(string(made.Stdout.Bytes()), "\n")
	options.dir = path.Join(folder, filepath.Base(source))
	if err := envtransfer.Upload(ctx, home, source, options.dir, envtransfer.UploadOptions{}); err != nil {
		return nil, err
	}
	options.vars = append(slices.Clone(options.vars), "GOTMPDIR="+folder, "GOCACHE="+folder+"/cache", "GOPATH="+folder+"/gopath")
	place, err := p.open(ctx, environmentSettings{backend: "ssh", options: options})
	if err != nil {
		return nil, err
	}
	if place, err = needGo(ctx, place, "ssh"); err != nil {
		return nil, err
	}
	place.after = remove
	return place, nil
}

// needGo closes a place that has no Go.
func needGo(ctx context.Context, place *workplace, backend string) (*workplace, error) {
	_, res, err := env.Output(ctx, place.plain, env.Command{Argv: []string{"go", "version"}}, env.OutputOptions{})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint := "which is not in PATH; install Go from https://go.dev/dl"
		switch backend {
		case "docker":
			hint = "which the image does not have; \"sandboxagent image build go\" builds one that has it"
		case "ssh":
			hint = "which is not where commands over SSH look for it on the host; \"sandboxagent exec --env=ssh --host HOST -- env\" shows their PATH"
		}
		return nil, joinClose(errors.New("the demonstration needs the go command, "+hint), place)
	case err != nil:
		return nil, joinClose(err, place)
	case res.ExitCode != 0:
		return nil, joinClose(fmt.Errorf("the demonstration needs a working go command, and go version ends with status %d", res.ExitCode), place)
	}
	return place, nil
}

// demoFolders returns the variables that keep what go writes on this machine in dir, and the folders that it writes to: what
// it has built already is of use.
func demoFolders(dir string) (vars, folders []string, err error) {
	add := func(variable, name string) {
		vars, folders = append(vars, variable+"="+name), append(folders, name)
	}
	add("GOTMPDIR", filepath.Join(dir, "tmp")) // what go leaves behind when it is killed goes with the folder
	add("GOCACHE", cmp.Or(goCache(), filepath.Join(dir, "cache")))
	if home, err := os.UserHomeDir(); err != nil || home == "" {
		add("GOPATH", filepath.Join(dir, "gopath"))
	}
	for _, name := range folders {
		err = errors.Join(err, os.MkdirAll(name, 0o700))
	}
	return vars, folders, err
}

// goCache returns Go's own place for what it builds; empty if there is none.
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

// serveScript makes a server with a script the model of the job. The caller closes the server.
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
	client, err := openai.New(openai.Config{BaseURL: server.URL(), APIKey: server.Key(), HTTPClient: server.Client()})
	if err != nil {
		server.Close()
		return nil, err
	}
	j.config = agent.Config{
		Client:  client,
		Profile: profile.OpenAI(script.Model),
		Env:     j.place.env,
		Store:   agent.OnDisk(j.sessions),
		Verify:  agent.Verify{Command: demoCheck},
		Log:     j.place.log,
	}
	return server, nil
}

// joinClose closes place, in which nothing runs, and returns err.
func joinClose(err error, place *workplace) error { return errors.Join(err, place.close()) }
