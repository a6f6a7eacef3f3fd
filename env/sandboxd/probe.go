package sandboxd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandboxagent/sandboxagent/env/verify"
)

// probeTimeout bounds a probe; each of its attempts takes a part of it.
const probeTimeout = 30 * time.Second

// mainReach prints an address that accepts a connection, if one does; see verify.Reach.
func mainReach(args []string) int {
	flags := newFlags("reach")
	if err := flags.Parse(args); err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	if address, ok := verify.Reach(ctx, flags.Args()); ok {
		if _, err := fmt.Println(address); err != nil {
			return fail(err)
		}
	}
	return exitOK
}

// mainProbe reads a request of env/verify from stdin and writes the report to stdout.
func mainProbe(args []string) int {
	if err := parse(newFlags("probe"), args); err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	if err := verify.Probe(ctx, os.Stdin, os.Stdout); err != nil {
		return fail(err)
	}
	return exitOK
}
