package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// TestEgressTo has the ports of models, and their addresses where they have no names.
func TestEgressTo(t *testing.T) {
	for name, tt := range map[string]struct {
		addresses, cidrs []string
		want             jobs.Egress
	}{
		"a provider": {[]string{""}, nil, jobs.Egress{Ports: []int32{443}}},
		"ports": {
			[]string{"http://a/v1", "https://b", "http://c:8080", "https://d:8443", "http://e"},
			nil,
			jobs.Egress{Ports: []int32{80, 443, 8080, 8443}},
		},
		"addresses": {
			[]string{"http://10.0.0.2:80/v1", "http://10.0.0.1/v1", "http://[fd00::1]:80"},
			nil,
			jobs.Egress{Ports: []int32{80}, CIDRs: []string{"10.0.0.1/32", "10.0.0.2/32", "fd00::1/128"}},
		},
		"an address and a name": {
			[]string{"http://10.0.0.1", "http://a"}, nil, jobs.Egress{Ports: []int32{80}},
		},
		"ranges": {
			[]string{"http://10.0.0.1"},
			[]string{"10.0.0.0/8"},
			jobs.Egress{Ports: []int32{80}, CIDRs: []string{"10.0.0.0/8"}},
		},
		"scripts only": {nil, nil, jobs.Egress{}},
	} {
		if diff := cmp.Diff(tt.want, egressTo(tt.addresses, tt.cidrs)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestWorkTask reads back the tasks of a submitted batch: as the file has them, and as agents work
// on them.
func TestWorkTask(t *testing.T) {
	given := batch.Task{ID: "a", Prompt: "p", Workdir: "here", Upload: []string{"x"}, Model: "m"}
	data, err := json.Marshal(workTask{Task: given, Sent: sentFields{
		Archive: "/w/1", Upload: []string{"/w/2:x"}, MaxCostUSD: 3,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got workTask
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	here := batch.Task{
		ID: "a", Prompt: "p", Archive: "/w/1", Upload: []string{"/w/2:x"}, Model: "m",
		Limits: batch.Limits{MaxCostUSD: 3},
	}
	if diff := cmp.Diff(given, got.Task) + cmp.Diff(here, got.here()); diff != "" {
		t.Error(diff)
	}
	here.Line, got.Line = 7, 7
	file, err := got.file()
	if err != nil {
		t.Fatal(err)
	}
	read, err := batch.ReadTasks(bytes.NewReader(file))
	if diff := cmp.Diff([]batch.Task{here}, read); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got.Task.Limits.MaxCostUSD, got.Sent.Model = 1, "other"
	if task := got.here(); task.Limits.MaxCostUSD != 1 || task.Model != "other" {
		t.Errorf("%+v", task)
	}
}
