// Command withdaemons runs a command, such as go test, with the services that tests need:
//
//	go run ./integration/withdaemons [--images] -- COMMAND [ARG…]
//
// It starts a private dockerd with a bridge network and the test images of package daemons, and
// with --images also the product's base image and the image of Go. It passes the address in the
// variable SANDBOXAGENT_TEST_DOCKER, runs the command, stops and removes everything, fails if
// something is left, and exits with the command's exit code. Where no service can be started, because
// there is no root, no Linux or no dockerd, it prints the reason and runs the command all the same: its tests
// skip, or fail where SANDBOXAGENT_REQUIRE demands docker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run returns the exit code: the command's; 125 if a service did not start or left something
// behind; 126 if the command cannot be run; 128 plus the number of the signal that ended it.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("withdaemons", flag.ContinueOnError)
	flags.SetOutput(stderr)
	more := flags.Bool("images", false, "load the product's base image and the image of Go too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "withdaemons: no command: withdaemons [--images] -- COMMAND [ARG…]")
		return 2
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	vars := os.Environ()
	if err := daemons.Available(); err != nil {
		fmt.Fprintf(stderr, "withdaemons: docker is not started: %v\n", err)
		return command(flags.Args(), vars, signals, stderr)
	}
	list := []string{daemons.Debian, daemons.Busybox, daemons.Empty, daemons.Foreign}
	if *more {
		list = append(list, daemons.Golang, images.DefaultReference)
	}
	daemon, caught, err := start(list, signals)
	if err != nil {
		fmt.Fprintf(stderr, "withdaemons: %v\n", err)
		if caught != 0 {
			return caught
		}
		return 125
	}
	code := command(flags.Args(), append(vars, daemons.HostVar+"="+daemon.Host()), signals, stderr)
	if err := daemon.Stop(); err != nil {
		fmt.Fprintf(stderr, "withdaemons: stop docker: %v\n", err)
		if code == 0 {
			code = 125
		}
	}
	return code
}

// start starts the daemon and loads the images. A signal meanwhile ends that; caught is then the
// exit code.
func start(
	list []string, signals <-chan os.Signal,
) (daemon *daemons.Docker, caught int, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		daemon, err = daemons.StartDocker(ctx, daemons.DockerConfig{Bridge: true})
		if err != nil {
			return
		}
		if err = daemon.Load(ctx, list...); err != nil {
			err = errors.Join(err, daemon.Stop())
		}
	}()
	select {
	case <-done:
	case s := <-signals:
		cancel(fmt.Errorf("caught %v", s))
		<-done
		if err == nil {
			err = errors.Join(context.Cause(ctx), daemon.Stop())
		}
		caught = exitCode(s)
	}
	cancel(nil)
	return daemon, caught, err
}

// command runs the command in a process group of its own and passes signals on to it.
func command(argv, vars []string, signals <-chan os.Signal, stderr io.Writer) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = vars
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.WaitDelay = 5 * time.Second
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "withdaemons: %v\n", err)
		return 126
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	for {
		select {
		case s := <-signals:
			sendGroup(cmd, s)
		case <-done:
			return status(cmd.ProcessState)
		}
	}
}
