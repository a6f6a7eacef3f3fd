package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// TestMergeChanges checks that the record has the changes of tools and of commands, each file once.
func TestMergeChanges(t *testing.T) {
	tools := []event.FileChange{
		{Path: "a", Kind: event.FileModified, Backup: "kept"}, {Path: "ignored", Kind: event.FileCreated},
	}
	found := []snapshot.FileChange{
		{Path: "a", Status: snapshot.Deleted, Deletions: 3},
		{Path: "b", Status: snapshot.Added, Insertions: 2},
		{Path: "d", From: "c", Status: snapshot.Renamed, Insertions: 1, Deletions: 1},
		{Path: "e", Status: snapshot.Modified, Binary: true},
	}
	want := []event.FileChange{
		{Path: "a", Kind: event.FileDeleted, Deletions: 3, Backup: "kept"},
		{Path: "ignored", Kind: event.FileCreated},
		{Path: "b", Kind: event.FileCreated, Insertions: 2},
		{Path: "c", Kind: event.FileDeleted},
		{Path: "d", Kind: event.FileCreated, Insertions: 1, Deletions: 1},
		{Path: "e", Kind: event.FileModified},
	}
	if diff := cmp.Diff(want, mergeChanges(tools, found)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if tools[0].Kind != event.FileModified {
		t.Error("the changes of the agent are changed")
	}
}
