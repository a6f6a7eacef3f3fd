package env_test

import (
	"context"
	"fmt"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
)

// Keep the start and the end of the output of a command, and all of it in a file.
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
