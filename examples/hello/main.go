// Command hello has a model write a file in the current directory.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

func main() {
	e, err := local.New(local.Config{}) // or the Open of a docker.Engine or an ssh.Host
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // it ends every process that is left
	a, err := agent.New(agent.Config{Client: client(), Profile: profile.Anthropic(model), Env: e})
	if err != nil {
		log.Panic(err)
	}
	defer a.Close() //nolint:errcheck // the run has ended
	result, err := a.Run(context.Background(), agent.Input{Text: "Greet me in a file."})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(result.Status, len(result.Changes), "file:", result.Final)
}
