package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// TestRepeatable checks after which outcomes an attempt is repeated.
func TestRepeatable(t *testing.T) {
	type runner struct{ inPlace, readOnly, mounts, open bool }
	container, here := runner{}, runner{inPlace: true}
	overloaded := fmt.Errorf("request 3: %w", &llm.Error{Kind: llm.KindOverloaded})
	refused := &llm.Error{Kind: llm.KindAuth}
	const environment, model = agent.StatusEnvironmentError, agent.StatusModelError
	for _, tt := range []struct {
		name    string
		runner  runner
		archive string
		status  agent.Status
		calls   int
		err     error
		want    bool
	}{
		{
			"a patch that lacks files", container, "", environment, 3,
			fmt.Errorf("the patch lacks %w: x", errUnreadable), false,
		},
		{"container lost", container, "", environment, 3, errors.New("it is gone"), true},
		{
			"a pod that the cluster weakens", container, "", environment, 0,
			&k8s.ConfigError{Field: "pod", Err: k8s.ErrPodField}, false,
		},
		{"no container", container, "", environment, 0, errors.New("no image"), true},
		{"overloaded", container, "", model, 3, overloaded, true},
		{"refused", container, "", model, 0, refused, false},
		{"other error of the model", container, "", model, 0, errors.New("a script"), false},
		{"a directory of the host", runner{mounts: true}, "", environment, 3, nil, false},
		{"a directory of the host, no call", runner{mounts: true}, "", environment, 0, nil, true},
		{"in place", here, "", environment, 1, nil, false},
		{"in place, no call", here, "", model, 0, overloaded, true},
		{"an archive", here, "a.tar", environment, 3, nil, true},
		{
			"an archive and a mount",
			runner{inPlace: true, mounts: true},
			"a.tar", environment, 3, nil,
			false,
		},
		{"read-only", runner{inPlace: true, readOnly: true}, "", environment, 3, nil, true},
		{
			"an archive without a sandbox",
			runner{inPlace: true, open: true},
			"a.tar", environment, 3, nil,
			false,
		},
		{"passed", container, "", agent.StatusCompleted, 3, nil, false},
		{"the agent failed", container, "", agent.StatusTaskFailed, 3, nil, false},
		{"a limit", container, "", agent.StatusLimit, 0, nil, false},
		{"the time is over", container, "", agent.StatusTimedOut, 0, nil, false},
		{"a defect", container, "", agent.StatusInternalError, 0, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &batchRunner{
				inPlace: tt.runner.inPlace, readOnly: tt.runner.readOnly, mounts: tt.runner.mounts,
			}
			got := r.repeatable(event.Result{Status: string(tt.status), ToolCalls: tt.calls},
				batch.Task{Archive: tt.archive}, &part{failure: tt.err, isolated: !tt.runner.open})
			if got != tt.want {
				t.Errorf("repeatable: %t", got)
			}
			// What commands have planted would be planted again.
			planted := event.Result{Status: string(tt.status), Disarmed: []event.Disarmed{{}}}
			if r.repeatable(planted, batch.Task{}, &part{failure: tt.err, isolated: true}) {
				t.Error("an attempt that has planted files is repeatable")
			}
		})
	}
}
