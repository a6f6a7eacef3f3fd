// Command sandboxd is the helper that runs beside the commands of an environment: it serves files and commands over a
// byte stream, and leaves nothing behind when its client is gone. Package sandboxd describes it.
package main

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

func main() { os.Exit(sandboxd.Main(os.Args[1:])) }
