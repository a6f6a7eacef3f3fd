// Command sandboxd is the helper that serves an environment from inside, over a byte stream, and
// leaves nothing behind when its client is gone. Package sandboxd describes it.
package main

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

func main() { os.Exit(sandboxd.Main(os.Args[1:])) }
