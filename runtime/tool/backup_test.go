package tool

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// backupList keeps backups in memory, in their order.
type backupList struct {
	kept []string // name and content
	err  error
}

func (l *backupList) Keep(name string, content io.Reader) (string, error) {
	if l.err != nil {
		return "", l.err
	}
	data, err := io.ReadAll(content)
	l.kept = append(l.kept, name+": "+string(data))
	return "backup of " + name, err
}

func TestBackups(t *testing.T) {
	files := map[string]string{"a.txt": "one\ntwo\n", "b.txt": "b\n"}
	for _, tt := range []struct {
		name, tool string
		args       args
		kept       []string
		changes    []event.FileChange
	}{
		{
			"write_file", "write_file",
			args{"file_path": "a.txt", "content": "new"},
			[]string{"a.txt: one\ntwo\n"},
			[]event.FileChange{{Path: "a.txt", Kind: event.FileModified, Backup: "backup of a.txt"}},
		},
		{
			"new file", "write_file",
			args{"file_path": "c.txt", "content": "new"},
			nil,
			[]event.FileChange{{Path: "c.txt", Kind: event.FileCreated}},
		},
		{
			"edit_file", "edit_file",
			args{"file_path": "a.txt", "old_string": "one", "new_string": "1"},
			[]string{"a.txt: one\ntwo\n"},
			[]event.FileChange{{Path: "a.txt", Kind: event.FileModified, Backup: "backup of a.txt"}},
		},
		{
			"apply_patch", "apply_patch", patch("*** Delete File: b.txt\n*** Update File: " +
				"a.txt\n@@\n-one\n+1\n"),
			[]string{"b.txt: b\n", "a.txt: one\ntwo\n"},
			[]event.FileChange{
				{Path: "b.txt", Kind: event.FileDeleted, Backup: "backup of b.txt"},
				{Path: "a.txt", Kind: event.FileModified, Backup: "backup of a.txt"},
			},
		},
		{"read_file", "read_file", args{"file_path": "a.txt"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var list backupList
			o := useIn(t, Scope{Env: newMemory(files), Backups: &list}, tt.tool, tt.args)
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if diff := cmp.Diff(tt.kept, list.kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.changes, o.Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoBackupNoChange checks that a file stays as it is that cannot be kept.
func TestNoBackupNoChange(t *testing.T) {
	m := newMemory(map[string]string{"a.txt": "one\n"})
	for _, c := range []struct {
		tool string
		args args
	}{
		{"write_file", args{"file_path": "a.txt", "content": "new"}},
		{"apply_patch", patch("*** Delete File: a.txt\n")},
	} {
		list := backupList{err: errors.New("the disk is full")}
		o := useIn(t, Scope{Env: m, Backups: &list}, c.tool, c.args)
		if o.Err == nil {
			t.Errorf("%s changes a file that could not be kept", c.tool)
		}
	}
	if diff := cmp.Diff(map[string]string{"a.txt": "one\n"}, m.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
