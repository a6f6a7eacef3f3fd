package remote_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Example opens an environment whose helper runs under another program, here nice.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the example ends here
	e, err := openUnder(ctx, []string{"nice", "-n", "10"}, dir, remote.Options{
		Vars: []string{"PATH=/usr/bin:/bin"}, // or Helper: sandboxd.Self(), see there
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close() //nolint:errcheck // the example ends here
	cmd := env.Command{Argv: []string{"nice"}, Stdout: os.Stdout}
	if _, err := e.Exec(ctx, cmd); err != nil {
		fmt.Println(err)
	}
}

// openUnder is a whole backend: it starts the helper by a command, such as "nice", "firejail" or
// "ip netns exec NAME". A backend whose sandbox has other files than this machine sends the program
// of the helper there instead of writing it into dir. The directory examples/own-backend has a
// backend with a sandbox of its own.
func openUnder(
	ctx context.Context, command []string, dir string, o remote.Options,
) (*remote.Environment, error) {
	o, err := o.Complete("under") // validates the options and sets their defaults
	if err != nil {
		return nil, err
	}
	p, err := o.Helper.Resolve(ctx, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, p.Name)
	if err := p.WriteFile(file); err != nil {
		return nil, err
	}
	argv := slices.Concat(command, p.Serve(file, "", 0))
	stream, err := remote.Start(exec.Command(argv[0], argv[1:]...)) // nothing outlives its stream
	if err != nil {
		return nil, err
	}
	return remote.Open(ctx, remote.Config{
		Backend: "under", Session: o.Session, Stream: stream, Dir: dir, Vars: o.Vars,
	})
}
