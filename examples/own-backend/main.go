// Command own-backend runs a command in a sandbox of its own kind: bubblewrap, with this machine's
// files read-only, an empty working directory and no network. The example of package env/remote is
// the smallest backend; this one makes and removes a sandbox, and reports its isolation.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

func main() {
	sandboxd.Main() // this program is the helper of its environments
	flag.Parse()
	if err := run(context.Background(), flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, argv []string) error {
	e, err := open(ctx, "/", remote.Options{
		Vars: []string{"PATH=/usr/bin:/bin"}, Helper: sandboxd.Self(),
	})
	if err != nil {
		return err
	}
	_, err = e.Exec(ctx, env.Command{Argv: argv, Stdout: os.Stdout, Stderr: os.Stderr})
	return errors.Join(err, e.Close())
}

// open opens an environment on the root file system in a directory, which it mounts read-only. The
// working directory is an empty, writable one.
func open(ctx context.Context, root string, o remote.Options) (_ *remote.Environment, err error) {
	if o, err = o.Complete("bubblewrap"); err != nil {
		return nil, err
	}
	p, err := o.Helper.Resolve(ctx, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bubblewrap-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	program, work := filepath.Join(dir, "sandboxd"), filepath.Join(dir, "work")
	if err := errors.Join(p.WriteFile(program), os.Mkdir(work, 0o700)); err != nil {
		return nil, err
	}
	// The helper is PID 1 of the sandbox. When its stream ends, it exits, and the sandbox with it.
	cmd := exec.Command("bwrap", "--unshare-all", "--as-pid-1", "--clearenv",
		"--ro-bind", root, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--tmpfs", "/run", "--ro-bind", program, "/run/sandboxd", "--bind", work, "/run/work", "--")
	cmd.Args = append(cmd.Args, p.Serve("/run/sandboxd", "", 0)...)
	cmd.Stderr = os.Stderr
	stream, err := remote.Start(cmd)
	if err != nil {
		return nil, err
	}
	return remote.Open(ctx, remote.Config{
		Backend: "bubblewrap", Session: o.Session, Stream: stream, Dir: "/run/work", Vars: o.Vars,
		Isolation: func(env.Guarantee) env.Guarantee {
			return env.Guarantee{Strength: env.Enforced, By: "bubblewrap"}
		},
		Close: func(closeHelper func() error) error {
			return errors.Join(closeHelper(), os.RemoveAll(dir))
		},
	})
}
