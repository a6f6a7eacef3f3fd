package sandboxd

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/probe"
)

// probeTime bounds a probe; each of its tries takes a part of it.
const probeTime = 30 * time.Second

// mainProbe reads what to try from the standard input and writes what came of it to the standard output.
func mainProbe(args []string) int {
	if err := parse(newFlags("probe"), args); err != nil {
		return usage(err)
	}
	q, err := probe.DecodeRequest(os.Stdin)
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	d, err := probe.Take(ctx, q)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(d)
	}
	if err != nil {
		return fail(err)
	}
	return exitOK
}
