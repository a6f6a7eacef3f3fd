// Command server runs tasks over HTTP:
//
//	curl --data "Which files are here?" http://127.0.0.1:8080
//
// The answer has the events of the run as JSON, one a line. Each request has an environment of its
// own, in a new directory and in a sandbox where this machine has one. It ends with the request,
// which the client may cancel. Here a script plays the model.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

const (
	firstTurn = `turns: [{calls: [{tool: shell, args: {command: "touch file && ls"}}]}]`
	lastTurn  = `turns: [{expect: {result: {contains: file}}, text: There is one file.}]`
)

func main() {
	sandboxd.Main() // this program is the helper of its environments
	address := flag.String("address", "127.0.0.1:8080", "")
	flag.Parse()
	a, err := agent.New(agent.Config{
		Client: llm.ClientFunc(model), Profile: profile.OpenAI("gpt-5.2"),
		Limits: agent.Limits{MaxToolRounds: 20, MaxTokens: 200_000, MaxDuration: 10 * time.Minute},
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler{a}}
	log.Fatal(server.Serve(listener))
}

// model plays the first turn for a task, and the last one for a result.
func model(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	text := firstTurn
	if req.Messages[len(req.Messages)-1].Role == llm.RoleTool {
		text = lastTurn
	}
	script, err := replay.ParseScript([]byte(text), "script")
	if err != nil {
		return func(yield func(llm.Delta, error) bool) { yield(llm.Delta{}, err) }
	}
	return replay.NewScript(script).Stream(ctx, req)
}

// handler serves tasks with one agent, each in a session of its own.
type handler struct{ agent *agent.Agent }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	task, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	started, err := h.run(w, r, string(task))
	switch {
	case err == nil:
	case started: // the last event has reported it
		log.Print(err)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// run runs a task in an environment of its own, and reports whether the answer has started.
func (h handler) run(
	w http.ResponseWriter, r *http.Request, task string,
) (started bool, err error) {
	dir, err := os.MkdirTemp("", "task-*")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e, err := local.Sandboxed(r.Context(), local.Config{Dir: dir}, sandboxd.Self(), env.Sandbox{})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s, err := h.agent.NewSession(r.Context(), agent.SessionOptions{Env: e})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flush := event.NewEncoder(w), http.NewResponseController(w)
	in := agent.Input{SessionID: s.ID(), Text: task}
	for ev, err := range h.agent.RunStream(r.Context(), in, nil) {
		if err == nil {
			err = errors.Join(lines.Encode(ev), flush.Flush())
		}
		if err != nil {
			return true, err // which aborts the run
		}
	}
	return true, nil
}
