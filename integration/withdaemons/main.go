// Command withdaemons runs a command, such as go test, with the services that tests need:
//
//	go run ./integration/withdaemons [--images] [--kube DURATION] -- COMMAND [ARG…]
//
// It starts a private dockerd with a bridge network and the test images of package daemons, and
// with --images also the product's base image and the image of Go. It passes the address in the
// variable SANDBOXAGENT_TEST_DOCKER. With --kube it starts a Kubernetes cluster, too, unless its
// programs have to be built, which takes longer than DURATION, and passes the kubeconfig file in
// SANDBOXAGENT_TEST_KUBECONFIG. It runs the command with a directory of its own in TMPDIR, stops
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
	"slices"
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
	kube := flags.Duration("kube", 0, "start a Kubernetes cluster, too, if it builds in this time")
	more := flags.Bool("images", false, "load the product's base image and the image of Go too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "withdaemons: no command: withdaemons [--images] [--kube DURATION] -- "+
			"COMMAND [ARG…]")
		return 2
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var vars []string
	var daemon *daemons.Docker
	var cluster *daemons.Kube
	if err := daemons.Available(); err != nil {
		fmt.Fprintf(stderr, "withdaemons: docker is not started: %v\n", err)
	} else {
		list := []string{daemons.Debian, daemons.Busybox, daemons.Empty, daemons.Foreign}
		if *more {
			list = append(list, daemons.Golang, images.DefaultReference)
		}
		var caught int
		if daemon, cluster, caught, err = start(list, *kube, signals, stderr); err != nil {
			fmt.Fprintf(stderr, "withdaemons: %v\n", err)
			return cmp.Or(caught, 125)
		}
		vars = append(vars, daemons.HostVar+"="+daemon.Host())
		if cluster != nil {
			vars = append(vars, daemons.KubeVar+"="+cluster.Config())
		}
	}
	code, err := cleanCommand(flags.Args(), vars, signals, stderr)
	if cluster != nil {
		if code != 0 {
			fmt.Fprintf(stderr, "withdaemons: the command has failed; the cluster after it:\n%s",
				cluster.State())
		}
		if e := cluster.Stop(); e != nil {
			err = errors.Join(err, fmt.Errorf("stop the cluster: %w", e))
		}
	}
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

// start starts the daemon, loads the images, and starts a cluster with them if one is wanted. A
// signal meanwhile ends that; caught is then the exit code.
func start(
	list []string, kube time.Duration, signals <-chan os.Signal, stderr io.Writer,
) (daemon *daemons.Docker, cluster *daemons.Kube, caught int, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		daemon, err = daemons.StartDocker(ctx, daemons.DockerConfig{Bridge: true})
		if err != nil {
			return
		}
		if err = daemon.Load(ctx, list...); err == nil && kube > 0 {
			cluster, err = startKube(ctx, daemon, inPods(list), kube, stderr)
		}
		if err != nil {
			err = errors.Join(err, daemon.Stop())
		}
	}()
	select {
	case <-done:
	case s := <-signals:
		cancel(fmt.Errorf("caught %v", s))
		<-done
		if err == nil {
			err = context.Cause(ctx)
			if cluster != nil {
				err = errors.Join(err, cluster.Stop())
			}
			err = errors.Join(err, daemon.Stop())
		}
		caught = exitCode(s)
	}
	cancel(nil)
	return daemon, cluster, caught, err
}

// startKube starts a cluster, unless tests use another one. If this machine cannot, or its programs
// do not build in time, it prints the reason and starts none.
func startKube(
	ctx context.Context, daemon *daemons.Docker, images []string, limit time.Duration,
	stderr io.Writer,
) (*daemons.Kube, error) {
	if daemons.OtherKube() {
		return nil, nil
	}
	err := daemons.KubeAvailable()
	if err == nil {
		limited, cancel := context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("its programs did not build within %s", limit))
		_, err = daemons.BuildKube(limited, "")
		if limited.Err() != nil {
			err = context.Cause(limited)
		}
		cancel()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "withdaemons: no cluster is started: %v\n", err)
		return nil, nil
	}
	return daemons.StartKube(ctx, daemon, images...)
}

// inPods returns the images of a list that tests run in pods, and that of the helper.
func inPods(list []string) []string {
	return append(slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		return name == daemons.Foreign || name == daemons.Golang
	}), daemons.Helper, daemons.Agent)
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
