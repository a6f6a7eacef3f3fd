// Command sandboxagent runs a model with tools, a command or a single tool call in an execution
// environment: this machine, a container, or a host over SSH.
//
// docs/cli.md describes its commands, flags, variables, output formats and exit codes.
package main

import (
	"context"
	"os"

	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

func main() {
	sandboxd.Main()
	if isImageHelper(os.Args) {
		os.Exit(sandboxd.Run(os.Args[1:]))
	}
	if isJanitor(os.Args) {
		os.Exit(janitor(os.Stdin, os.Args[2:]))
	}
	p := program{std: newStreams(os.Stdin, os.Stdout, os.Stderr)}
	if isWorker(os.Args) {
		os.Exit(p.workInPod(context.Background()))
	}
	os.Exit(p.run(context.Background(), os.Args))
}
