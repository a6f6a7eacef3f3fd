// Command outside is a program of another module, and its own helper. It opens an environment of
// the kind that its first argument names, and runs a command in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/env/ssh"
)

func main() {
	sandboxd.Main()
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	e, err := open(ctx, args)
	if err != nil {
		return err
	}
	_, err = e.Exec(ctx, env.Command{Argv: []string{"echo", "hello"}, Stdout: os.Stdout})
	return errors.Join(err, e.Close())
}

func open(ctx context.Context, args []string) (env.Environment, error) {
	self := sandboxd.Self()
	switch args[0] {
	case "docker":
		engine, err := docker.Connect(ctx, docker.Address{Host: args[1]})
		if err != nil {
			return nil, err
		}
		return engine.Open(ctx, docker.Config{
			Options: remote.Options{Helper: self}, Image: args[2],
		})
	case "ssh":
		host, err := ssh.Connect(ctx, ssh.Target{
			Host: args[1], ConfigFile: os.DevNull, Identities: args[2:3], KnownHosts: args[3],
		})
		if err != nil {
			return nil, err
		}
		return host.Open(ctx, ssh.Config{Options: remote.Options{Helper: self}})
	case "sandbox":
		return local.Sandboxed(ctx, local.Config{}, self, env.Sandbox{})
	}
	return local.Supervised(ctx, local.Config{}, self)
}
