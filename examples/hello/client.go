package main

import (
	"log"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
)

const model = "claude-sonnet-5-5"

const script = `
turns:
  - calls: [{tool: write_file, args: {file_path: hello.txt, content: "hello\n"}}]
  - text: I have written hello.txt.
`

// client returns a client of the model. Here a script plays the model; the client of a real one is
// anthropic.New(anthropic.Config{APIKey: key}).
func client() llm.Client {
	s, err := replay.ParseScript([]byte(script), "script")
	if err != nil {
		log.Fatal(err)
	}
	return replay.NewScript(s)
}
