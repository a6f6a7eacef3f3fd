// Command kubectl is kubectl apart from the servers, whose code takes longer to start than it takes
// to run a command.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
