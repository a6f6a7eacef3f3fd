package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGitStartsNoEditor runs subcommands of git with all pairs of options, and finds those that
// start an editor: each is one that may.
func TestGitStartsNoEditor(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	dir := t.TempDir()
	started := filepath.Join(dir, ".git", "started")
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\ntouch '"+started+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) error {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{
			"-C", dir, "-c", "user.name=t", "-c", "user.email=t@e",
		}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_EDITOR="+editor, "GIT_CONFIG_GLOBAL="+os.DevNull,
			"GIT_CONFIG_SYSTEM="+os.DevNull)
		return cmd.Run()
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "a"}, {"add", "."},
	} {
		if err := git(args...); err != nil {
			t.Fatal(args, err)
		}
	}
	text := filepath.Join(dir, ".git", "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, edits := 0, 0
	for _, tt := range []struct{ command, options string }{
		{
			"commit --allow-empty",
			"-m x|-mx|--message=x|-F TEXT|--file TEXT|-C HEAD|-c HEAD|-e|--edit|--no-edit|--amend|-t TEXT|" +
				"-a|-am x|-S|-u|-uno|-v|-q|--author a<b>|--fixup=HEAD|--fixup amend:HEAD|--squash HEAD|" +
				"--dry-run|--no-message|--no-file|--no-verify|-s|--trailer a:b|--reset-author --amend|--|" +
				"--end-of-options|-me|-em x|--no-fixup|--no-dry-run|--mess=x|--cleanup verbatim",
		},
		{
			"tag -f v1",
			"-a|-m x|-F TEXT|--no-edit|-e|-n-1|-n|-l|-d|--annotate|--no-file|--cleanup verbatim|--ann|" +
				"-am x|--no-annotate|-u x",
		},
		{
			"notes add -f", "-m x|-F TEXT|-C HEAD:x|-e|--allow-empty|--no-separator|-c HEAD|" +
				"--reedit-message=HEAD|--no-edit",
		},
		{"revert HEAD", "--no-edit|-e|--edit|-n|--commit|-s|--no-commit"},
	} {
		var options [][]string
		for _, o := range strings.Split(strings.ReplaceAll(tt.options, "TEXT", text), "|") {
			options = append(options, strings.Fields(o))
		}
		pairs := [][]string{nil}
		for _, a := range options {
			pairs = append(pairs, a)
			for _, b := range options {
				pairs = append(pairs, slices.Concat(a, b))
			}
		}
		for i, options := range pairs {
			if testing.Short() && i%11 > 0 {
				continue
			}
			args := slices.Concat(strings.Fields(tt.command), options)
			_ = git(args...) // whether it works does not matter
			_, err := os.Stat(started)
			runs++
			if err != nil {
				continue
			}
			edits++
			if !gitEdits(args[0], args[1:]) {
				t.Errorf("git %q starts an editor", args)
			}
			if err := os.Remove(started); err != nil {
				t.Fatal(err)
			}
		}
	}
	if edits == 0 || edits == runs {
		t.Errorf("%d of %d commands start an editor", edits, runs)
	}
}
