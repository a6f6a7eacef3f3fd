package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Snapshot has the changes to the working directory since the Snapshot before it, or the start of
// the program.
type Snapshot struct {
	// Call is the last call whose changes it has.
	Call    string       `json:"call_id"`
	Changes []FileChange `json:"changes,omitempty"`
	// Lost is why changes are missing, or the contents of all; empty otherwise.
	Lost string `json:"lost,omitempty"`
}

// FileChange is a changed file with its versions before and after.
type FileChange struct {
	Name   FileName    `json:"name"`
	Before FileVersion `json:"before,omitzero"`
	After  FileVersion `json:"after,omitzero"`
}

// FileVersion is a version of a file or symlink; the zero value is a missing one. Its content is
// the object SHA256, see Disk.OpenObject.
type FileVersion struct {
	Mode   fs.FileMode `json:"mode"`
	SHA256 string      `json:"sha256"`
	// Private means that only the owner of the file has permissions.
	Private bool `json:"private,omitempty"`
}

// Same reports whether two versions are equal for git, which knows no other permission than that to
// execute.
func (v FileVersion) Same(other FileVersion) bool {
	return v.Mode == other.Mode && v.SHA256 == other.SHA256
}

// FileName is the name of a file, relative to the working directory. In JSON a name that is not
// UTF-8, or starts with a quote, is quoted as in Go.
type FileName string

// MarshalJSON implements json.Marshaler.
func (n FileName) MarshalJSON() ([]byte, error) {
	if text := string(n); utf8.ValidString(text) && !strings.HasPrefix(text, `"`) {
		return json.Marshal(text)
	}
	return json.Marshal(strconv.Quote(string(n)))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *FileName) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if strings.HasPrefix(text, `"`) {
		var err error
		if text, err = strconv.Unquote(text); err != nil {
			return fmt.Errorf("the file name %s: %w", data, err)
		}
	}
	*n = FileName(text)
	return nil
}

// RolledBack removes all entries after the entry To from the session, up to this one. What they
// have used of limits stays used.
type RolledBack struct {
	To int64 `json:"to"`
}

// StatusRolledBack is the status of the last run of a session that was rolled back.
const StatusRolledBack = "rolled_back"

// Point is an entry of the journal to which a session can be rolled back: an input, an answer
// without calls, or the last result of an answer with calls.
type Point struct {
	Seq int64
	// Turns is the number of turns of Record.Conversation until then.
	Turns int
	// Files is the number of files that the calls of the answer have changed.
	Files int
	// Lost means that changes of them are not known.
	Lost bool
}

// ErrNoPoint means that a session cannot be rolled back to an entry.
var ErrNoPoint = errors.New("it is none of the points of the session")

// ErrFilesLost means that the changes to files since a point are not known.
var ErrFilesLost = errors.New("the changes to files since then are not known")

// ChainError lists the files that something else has changed between two snapshots of a session.
type ChainError struct{ Names []string }

func (e *ChainError) Error() string {
	return fmt.Sprintf("files were changed by others between runs of the session: %q", e.Names)
}

// ChangesBack returns the changes of files that lead from the last snapshot back to a point, sorted
// by name. The error wraps ErrNoPoint or ErrFilesLost, or is a *ChainError.
func (r *Record) ChangesBack(point int64) ([]FileChange, error) {
	if !r.HasPoint(point) {
		return nil, fmt.Errorf("entry %d: %w", point, ErrNoPoint)
	}
	var back []FileChange
	for _, s := range slices.Backward(r.snapshots) {
		if s.point <= point {
			if s.Lost != "" && len(back) > 0 { // which the one after it has, too
				return nil, fmt.Errorf("%w: %s", ErrFilesLost, s.Lost)
			}
			break
		}
		if s.Lost != "" {
			return nil, fmt.Errorf("%w: %s", ErrFilesLost, s.Lost)
		}
		var err error
		if back, err = Compose(back, Invert(s.Changes)); err != nil {
			return nil, err
		}
	}
	return back, nil
}

// HasPoint reports whether an entry is one of the Points.
func (r *Record) HasPoint(seq int64) bool {
	return slices.ContainsFunc(r.Points, func(p Point) bool { return p.Seq == seq })
}

// Start returns the first point of the session, its first input; zero without one.
func (r *Record) Start() int64 {
	if len(r.Points) == 0 {
		return 0
	}
	return r.Points[0].Seq
}

// Invert returns the changes that take others back.
func Invert(list []FileChange) []FileChange {
	inverse := make([]FileChange, len(list))
	for i, c := range list {
		inverse[i] = FileChange{c.Name, c.After, c.Before}
	}
	return inverse
}

// Compose returns the changes of first and then second as one list, sorted by name, without files
// that end as they were. A file whose version after first is not that before second is in the
// *ChainError.
func Compose(first, second []FileChange) ([]FileChange, error) {
	all := make(map[FileName]FileChange)
	for _, c := range first {
		all[c.Name] = c
	}
	var broken []string
	for _, c := range second {
		if have, ok := all[c.Name]; ok {
			if !have.After.Same(c.Before) {
				broken = append(broken, string(c.Name))
			}
			c.Before = have.Before
		}
		all[c.Name] = c
	}
	if len(broken) > 0 {
		slices.Sort(broken)
		return nil, &ChainError{broken}
	}
	return sorted(all), nil
}

// sorted returns changes by name, without files that end as they were.
func sorted(all map[FileName]FileChange) (list []FileChange) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if c := all[name]; !c.Before.Same(c.After) {
			list = append(list, c)
		}
	}
	return list
}

// Changes returns the changes of files from the start to the end of the session that are known,
// sorted by name. Contents of them may be missing, and others may have changed the files between.
func (r *Record) Changes() []FileChange {
	all := make(map[FileName]FileChange)
	for _, s := range r.snapshots {
		for _, c := range s.Changes {
			if have, ok := all[c.Name]; ok {
				c.Before = have.Before
			}
			all[c.Name] = c
		}
	}
	return sorted(all)
}

// LastCall returns the ID of the last call before a point; empty without one.
func (r *Record) LastCall(point int64) (id string) {
	for _, p := range r.Points {
		if p.Seq != point {
			continue
		}
		for _, t := range r.Conversation[:p.Turns] {
			for _, part := range t.Parts {
				if part.ToolCall != nil {
					id = part.ToolCall.ID
				}
			}
		}
	}
	return id
}

// recordedSnapshot is a Snapshot with the point whose files it has.
type recordedSnapshot struct {
	Snapshot

	seq, point int64
}

// rollback is an entry TypeRolledBack, with what the session had used.
type rollback struct {
	seq, to int64
	spent   Spent
	models  []event.ModelUsage
}

// isDead reports whether a rollback has removed an entry.
func isDead(rollbacks []rollback, seq int64) bool {
	return slices.ContainsFunc(rollbacks, func(r rollback) bool {
		return seq > r.to && seq <= r.seq
	})
}

// addDead adds the part of a removed entry that stays.
func (b *recordBuilder) addDead(e Entry) error {
	switch e.Type {
	case TypeStarted, TypeResumed:
		b.Started = Started{}
		b.writers++
		return json.Unmarshal(e.Data, &b.Started)
	case TypeTurn: // no other call gets its IDs
		var t Turn
		if err := json.Unmarshal(e.Data, &t); err != nil {
			return err
		}
		for _, p := range t.Parts {
			if p.ToolCall != nil {
				b.CallIDs = append(b.CallIDs, p.ToolCall.ID)
			}
		}
	case TypeSnapshot:
		return b.addSnapshot(e)
	case TypeRolledBack:
		i := slices.IndexFunc(b.rollbacks, func(r rollback) bool { return r.seq == e.Seq })
		b.Spent, b.Models, b.agents = b.rollbacks[i].spent, b.rollbacks[i].models, nil
		if n := len(b.Runs); n > 0 {
			b.Runs[n-1].Ended = &RunEnded{Status: StatusRolledBack}
		}
		b.before = slices.Clone(b.Models)
	}
	return nil
}

// addSnapshot adds a snapshot to the point after its last call. Without one it belongs to the
// entry, which may be removed.
func (b *recordBuilder) addSnapshot(e Entry) error {
	var s Snapshot
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return err
	}
	point, known := b.pointOf[s.Call]
	switch {
	case !known && isDead(b.rollbacks, e.Seq):
		return nil
	case !known:
		point = e.Seq
	}
	b.snapshots = append(b.snapshots, recordedSnapshot{s, e.Seq, point})
	return nil
}

// placeSnapshots gives each snapshot in the middle of a round the point at its end, and adds up the
// files of the points.
func (b *recordBuilder) placeSnapshots() {
	for i, s := range b.snapshots {
		at := slices.IndexFunc(b.Points, func(p Point) bool { return p.Seq >= s.point })
		if at >= 0 {
			b.snapshots[i].point = b.Points[at].Seq
			b.Points[at].Files += len(s.Changes)
			b.Points[at].Lost = b.Points[at].Lost || s.Lost != ""
		} else if len(s.Changes) > 0 || s.Lost != "" {
			b.ChangedSince = true
		}
	}
}

// Unrecorded returns the last call of the tools called names that was started after the last
// snapshot, in a run that counts; empty without one. With AgentsLost the last call of all counts,
// unless the last snapshot has a reason why changes are not known.
func (r *Record) Unrecorded(names []string, counts func(Run) bool) (id string) {
	last, lost := "", false
	for _, s := range r.snapshots {
		last, lost = cmp.Or(s.Call, last), s.Lost != ""
	}
	ignored := make(map[string]bool)
	for _, run := range r.Runs {
		ignored[run.RunID] = !counts(run)
	}
	end := ""
	for _, t := range r.Conversation {
		for _, p := range t.Parts {
			c := p.ToolCall
			if c == nil {
				continue
			}
			run, started := r.started[c.ID]
			switch end = c.ID; {
			case c.ID == last:
				id = ""
			case slices.Contains(names, c.Name) && started && !ignored[run]:
				id = c.ID
			}
		}
	}
	if id == "" && r.AgentsLost && !lost {
		return end
	}
	return id
}

// rolledBack is an entry TypeRolledBack of the first reading.
func (b *recordBuilder) rolledBack(e Entry) error {
	var r RolledBack
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return err
	}
	if r.To < 1 || r.To >= e.Seq {
		return fmt.Errorf("it goes back to entry %d", r.To)
	}
	b.addAgents()
	b.found = append(b.found, rollback{e.Seq, r.To, b.Spent, slices.Clone(b.Models)})
	b.order, b.calls = nil, make(map[string]*OpenCall)
	return nil
}

// point makes an entry a point after turns of the conversation.
func (b *recordBuilder) point(seq int64, turns int) {
	b.Points = append(b.Points, Point{Seq: seq, Turns: turns})
}
