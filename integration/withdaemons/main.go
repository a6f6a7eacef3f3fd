// Command withdaemons runs a command, such as go test, with the services that tests need:
//
//	go run ./integration/withdaemons [--images] -- COMMAND [ARG…]
//
// It starts a private dockerd with a bridge network and the test images of package daemons, and
// with --images also the product's base image and the image of Go. It passes the address in the
// variable SANDBOXAGENT_TEST_DOCKER, runs the command with a directory of its own in TMPDIR, stops
// and removes everything, and exits with the command's exit code. It fails if the command leaves a
// file in TMPDIR, or a process or mount that uses it. Where no service can be started, because the
// machine has no root, no Linux or no dockerd, it prints the reason and runs the command all the
// same: its tests skip, or fail where SANDBOXAGENT_REQUIRE demands docker.
package main

import (
	"cmp"
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

// run returns the exit code: the command's; 125 if a service did not start, or if it or the command
// left something; 126 if the command cannot be run; 128 plus the number of the signal that ended
// it.
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
	var vars []string
	var daemon *daemons.Docker
	if err := daemons.Available(); err != nil {
		fmt.Fprintf(stderr, "withdaemons: docker is not started: %v\n", err)
	} else {
		list := []string{daemons.Debian, daemons.Busybox, daemons.Empty, daemons.Foreign}
		if *more {
			list = append(list, daemons.Golang, images.DefaultReference)
		}
		var caught int
		if daemon, caught, err = start(list, signals); err != nil {
			fmt.Fprintf(stderr, "withdaemons: %v\n", err)
			return cmp.Or(caught, 125)
		}
		vars = append(vars, daemons.HostVar+"="+daemon.Host())
	}
	code, err := cleanCommand(flags.Args(), vars, signals, stderr)
	if daemon != nil {
		if e := daemon.Stop(); e != nil {
			err = errors.Join(err, fmt.Errorf("stop docker: %w", e))
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "withdaemons: %v\n", err)
		code = cmp.Or(code, 125)
	}
	return code
}

// cleanCommand runs the command with additional variables, and returns an error if it leaves
// something.
func cleanCommand(
	argv, vars []string, signals <-chan os.Signal, stderr io.Writer,
) (code int, err error) {
	temp, err := makeTemp()
	if err != nil {
		return 0, err
	}
	code = command(argv, append(append(os.Environ(), vars...), "TMPDIR="+temp), signals, stderr)
	return code, removeTemp(temp)
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
	separateGroup(cmd)
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
