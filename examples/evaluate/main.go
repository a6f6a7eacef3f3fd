// Command evaluate measures an agent on tasks that tests decide, as SWE-bench does: the agent works
// on a repository in an image, its patch is applied in a fresh container of the image, and tests
// that it has never seen run there. Here a script plays the model, which does one task of two. The
// program needs Docker and the image that "sandboxagent image build base" builds.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

//go:embed image
var source embed.FS

// task is a task with the tests that decide it.
type task struct {
	name string
	// image has the repository in the directory dir.
	image, dir string
	problem    string
	// tests is a shell script for dir, which fails if the task is not done.
	tests string
	// script plays the model.
	script string
}

// report is the result of a task.
type report struct {
	// status is how the agent ended.
	status agent.Status
	// patch has the changes, for git apply.
	patch []byte
	// solved reports that the tests succeeded; output is theirs.
	solved bool
	output string
}

const reference = "sandboxagent-example-evaluate:latest"

var tasks = []task{
	{
		name: "upper", image: reference, dir: "/testbed",
		problem: "upper in text.sh prints lower-case letters. Repair it.",
		tests:   `. ./text.sh && test "$(upper abc)" = ABC`,
		script: `
turns:
  - calls:
      - tool: shell
        args: {command: "sed -i 's/A-Z a-z/a-z A-Z/' text.sh && git diff --stat"}
  - expect: {result: {contains: "1 file changed"}}
    text: upper prints capital letters now.
`,
	},
	{
		name: "repeat", image: reference, dir: "/testbed",
		problem: "repeat 2 ab prints ababab. Repair it.",
		tests:   `. ./text.sh && test "$(repeat 2 ab)" = abab`,
		script: `
turns:
  - text: I find no mistake.
`,
	},
}

func main() {
	sandboxd.Main() // this program is the helper in its containers
	base := flag.String("base", "sandboxagent-base:latest", "build on this image, which has git")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *base)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run builds the image and prints the results of the tasks.
func run(ctx context.Context, base string) (err error) {
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := build(ctx, engine, base); err != nil {
		return err
	}
	solved := 0
	for _, t := range tasks {
		r, err := evaluate(ctx, engine, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if r.solved {
			solved++
		}
		fmt.Printf("%s: %s, %d bytes of patch, solved: %t\n", t.name, r.status, len(r.patch), r.solved)
	}
	fmt.Printf("%d of %d solved\n", solved, len(tasks))
	return nil
}

// build builds the image of the tasks.
func build(ctx context.Context, engine *docker.Engine, base string) error {
	files, err := fs.Sub(source, "image")
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(files), w.Close()); err != nil {
		return err
	}
	return engine.Build(ctx, &archive, docker.BuildOptions{
		Reference: reference, Args: map[string]string{"BASE": base}, Network: "none",
	})
}

// evaluate has an agent do a task, and tests its patch.
func evaluate(ctx context.Context, engine *docker.Engine, t task) (report, error) {
	var r report
	err := within(ctx, engine, t, func(e env.Environment) (err error) {
		before, err := snapshot.Take(ctx, e, t.dir, snapshot.Options{})
		if err != nil {
			return err
		}
		defer before.Close() //nolint:errcheck // it was only read
		if r.status, err = work(ctx, e, t); err != nil {
			return err
		}
		after, err := snapshot.Take(ctx, e, t.dir, snapshot.Options{Base: before})
		if err != nil {
			return err
		}
		defer after.Close() //nolint:errcheck // it was only read
		var patch bytes.Buffer
		_, err = snapshot.WritePatch(ctx, &patch, before, after)
		r.patch = patch.Bytes()
		return err
	})
	if err != nil {
		return r, err
	}
	return r, within(ctx, engine, t, func(e env.Environment) error {
		script := t.tests
		if len(r.patch) > 0 {
			script = "git apply - && " + script
		}
		out, res, err := env.Output(ctx, e, env.Command{
			Argv: []string{"sh", "-c", script}, Stdin: bytes.NewReader(r.patch),
		}, env.OutputOptions{Combined: true})
		r.solved, r.output = err == nil && res.ExitCode == 0, string(out.Stdout.Bytes())
		return err
	})
}

// within calls use with a fresh container of the task's image.
func within(
	ctx context.Context, engine *docker.Engine, t task, use func(env.Environment) error,
) (err error) {
	e, err := engine.Open(ctx, docker.Config{
		Options: remote.Options{Helper: sandboxd.Self()},
		Image:   t.image, WorkDir: t.dir, OwnWorkDir: true, WritableRoot: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return use(e)
}

// work has an agent do a task. However it ends, its patch is tested.
func work(ctx context.Context, e env.Environment, t task) (status agent.Status, err error) {
	model, err := replay.ParseScript([]byte(t.script), t.name)
	if err != nil {
		return "", err
	}
	a, err := agent.New(agent.Config{
		Client: replay.NewScript(model), Profile: profile.OpenAI("gpt-5.2"), Env: e,
		Limits: agent.Limits{MaxToolRounds: 50},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	result, err := a.Run(ctx, agent.Input{Text: t.problem})
	if result.Status != "" && ctx.Err() == nil {
		err = nil
	}
	return result.Status, err
}
