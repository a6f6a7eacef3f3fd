package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// Bounds of the sessions that pastFailures reads: their number, and the bytes of all journals.
const (
	maxPastSessions = 50
	maxPastBytes    = 64 << 20
	maxRemedy       = 300
)

// pastFailures returns the failures of the last sessions in a directory that had the project of the
// program line own, the newest last. Sessions that cannot be read, and those in use, have none.
func pastFailures(sessions string, own json.RawMessage) func(context.Context) []failure.Past {
	return func(ctx context.Context) []failure.Past {
		project, left := projectOf(own), int64(maxPastBytes)
		var found [][]failure.Past
		for _, dir := range newestSessions(sessions) {
			fi, err := os.Stat(filepath.Join(dir, session.JournalName))
			if len(found) == maxPastSessions || ctx.Err() != nil {
				break
			}
			if err != nil || fi.Size() > left || session.InUse(dir) {
				continue
			}
			left -= fi.Size()
			r, err := session.Load(dir)
			if err == nil && r.Started.Parent == "" && projectOf(r.Started.Program) == project {
				found = append(found, failuresOf(r))
			}
		}
		slices.Reverse(found)
		return slices.Concat(found...)
	}
}

// projectOf returns the project of a program line, empty without one: the directory that has its
// configuration, or else that in which it works, on this machine or a remote host.
func projectOf(program json.RawMessage) string {
	var line programLine
	if json.Unmarshal(program, &line) != nil {
		return ""
	}
	dir := lastValue(line.Flags, "workdir")
	if lastValue(line.Flags, "env") == (&sshBackend{}).name() {
		return "ssh://" + lastValue(line.Flags, "host") + "/" + path.Clean(dir)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(line.Dir, dir)
	}
	return cmp.Or(line.Project, dir)
}

// newestSessions returns the directories in dir whose journals changed last, the newest first.
func newestSessions(dir string) []string {
	entries, _ := os.ReadDir(dir) // without it no session has failed
	times := make(map[string]time.Time, len(entries))
	var names []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if fi, err := os.Stat(filepath.Join(name, session.JournalName)); err == nil {
			names, times[name] = append(names, name), fi.ModTime()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return times[b].Compare(times[a]) })
	return names
}

func failuresOf(r *session.Record) (list []failure.Past) {
	for _, f := range r.Failures {
		p := failure.Past{Failure: f.Failure, PastFailure: event.PastFailure{SessionID: r.ID}}
		p.Remedy = shorten.Cut(remedyText(f), maxRemedy)
		list = append(list, p)
	}
	return list
}

// remedyText returns the calls that helped against a failure; empty without any.
func remedyText(f session.Failure) string {
	texts := make([]string, len(f.Remedy))
	for i, c := range f.Remedy {
		texts[i] = c.Name + " " + c.Canonical()
	}
	return strings.Join(texts, ", then ")
}
