package env_test

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// under is an environment whose commands run under another program, such as nice, firejail or
// systemd-run.
type under struct {
	env.Environment
	program []string
}

// Exec implements env.Environment.
func (u under) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	cmd.Argv = slices.Concat(u.program, cmd.Argv)
	return u.Environment.Exec(ctx, cmd)
}

// An environment of your own can embed another and replace methods, as here. The suite in
// package envtest proves that it keeps the contract: envtest.Run(t, envtest.Options{…}).
func Example_customEnvironment() {
	e, err := local.New(local.Config{Dir: os.TempDir()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = e.Close() }()
	var custom env.Environment = under{e, []string{"env", "GREETING=hello"}}

	out, _, err := env.Output(context.Background(), custom, env.Command{Argv: []string{
		"printenv",
		"GREETING",
	}}, env.OutputOptions{})
	fmt.Printf("%s%v\n", out.Stdout.Head(), err)
	// Output:
	// hello
	// <nil>
}

// Keep the start and the end of what a command prints, and all of it in a file.
func ExampleOutput() {
	build := func(ctx context.Context, e env.Environment) error {
		spool, err := os.CreateTemp("", "build-*.log")
		if err != nil {
			return err
		}
		defer func() { _ = spool.Close() }()
		cmd := env.Command{Argv: []string{"go", "build", "./..."}}
		out, result, err := env.Output(ctx, e, cmd, env.OutputOptions{
			Stdout:   env.CaptureOptions{Head: 4 << 10, Tail: 16 << 10, Spool: spool},
			Combined: true,
		})
		if err != nil {
			return err
		}
		fmt.Printf("exit code %d\n%s", result.ExitCode, out.Stdout.Head())
		if n := out.Stdout.Omitted(); n > 0 {
			fmt.Printf("\n[%d bytes are in %s]\n", n, spool.Name())
		}
		fmt.Printf("%s", out.Stdout.Tail())
		return nil
	}
	_ = build
}

// Read a small file, and refuse a large one.
func ExampleReadFile() {
	module := func(ctx context.Context, e env.FileReader) (string, error) {
		data, err := env.ReadFile(ctx, e, "go.mod", 1<<20)
		if err != nil {
			return "", err // A *fs.PathError, which wraps env.ErrTooLarge if the file has more than 1 MiB.
		}
		return string(data), nil
	}
	_ = module
}

// A capture keeps both ends of a stream of any length.
func ExampleCapture() {
	c := env.NewCapture(env.CaptureOptions{Head: 4, Tail: 4})
	for i := range 10 {
		if _, err := fmt.Fprintf(c, "%d,", i); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("%s … %s (%d of %d bytes omitted)\n", c.Head(), c.Tail(), c.Omitted(), c.Size())
	// Output: 0,1, … 8,9, (12 of 20 bytes omitted)
}
