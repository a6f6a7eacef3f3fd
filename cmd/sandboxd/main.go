// Command sandboxd is the helper: it runs inside an environment, serves it over a byte stream, and
// kills everything that it started when its client is gone. Package env/sandboxd documents it.
package main

import (
	"os"

	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

func main() { os.Exit(sandboxd.Run(os.Args[1:])) }
