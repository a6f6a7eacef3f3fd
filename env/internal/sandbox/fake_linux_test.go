package sandbox

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFakes starts programs that take the arguments of bubblewrap and do less.
func TestFakes(t *testing.T) {
	need(t, Bubblewrap)
	for name, tt := range map[string]struct {
		script, want string
	}{
		"nothing": {`while [ "$1" != -- ]; do shift; done; shift; exec "$@"`, "no pid namespace"},
		"a namespace": {`while [ "$1" != -- ]; do shift; done; shift; ` +
			`exec unshare -Urpf --mount-proc "$@"`, "/ can be changed"},
		"it fails": {`echo broken >&2; exit 1`, "broken"},
		"the network": {`for a; do shift; [ "$a" = --unshare-net ] || set -- "$@" "$a"; done; ` +
			`exec bwrap "$@"`, "network interface"},
		"a home": {`for a; do shift; case $a in */home) a=/mnt ;; esac; set -- "$@" "$a"; ` +
			`done; exec bwrap "$@"`, "home is not hidden"},
		"a hook": {`for a; do shift; case $a in */hooks) a=/mnt ;; esac; set -- "$@" "$a"; ` +
			`done; exec bwrap "$@"`, "hooks can be changed"},
		"a password": {`for a; do shift; case $a in */out/file) a=/etc/hostname ;; esac; ` +
			`set -- "$@" "$a"; done; exec bwrap "$@"`, "out/file is not hidden"},
		"our settings": {`for a; do shift; case $a in */sandboxagent.yaml) a=/etc/hostname ;; ` +
			`esac; set -- "$@" "$a"; done; exec bwrap "$@"`, "sandboxagent.yaml can be changed"},
		"processes talk": {`for a; do shift; [ "$a" = --unshare-ipc ] || set -- "$@" "$a"; done; ` +
			`exec bwrap "$@"`, "no ipc namespace"},
		"a gap": {`for a; do shift; [ "$a" = -- ] && set -- "$@" --bind "$OUT" /mnt; ` +
			`set -- "$@" "$a"; done; exec bwrap "$@"`, "/mnt can be changed, which was not planned"},
		"a gap in work": {`mkdir "$WORK/gap"; for a; do shift; [ "$a" = -- ] && ` +
			`set -- "$@" --bind "$OUT" "$WORK/gap"; set -- "$@" "$a"; done; ` +
			`exec bwrap "$@"`, "gap can be changed, which was not planned"},
		"another directory": {
			`mv "$WORK" "$WORK.old"; cp -r "$WORK.old" "$WORK"; exec bwrap "$@"`,
			"has become something else",
		},
		"another .git": {
			`mv "$WORK/.git" "$OUT/git"; cp -r "$OUT/git" "$WORK/.git"; exec bwrap "$@"`,
			"has become something else",
		},
		"a link": {`mv "$WORK/.git" "$WORK/old"; mkdir "$OUT/hooks"; ` +
			`ln -s ../out "$WORK/.git"; exec bwrap "$@"`, ""},
		"not as process": {`for a; do shift; [ "$a" = --as-pid-1 ] || set -- "$@" "$a"; done; ` +
			`exec bwrap "$@"`, "no pid namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy.Hide = []string{w.out + "/file"}
			p, err := New(w.policy, Bubblewrap, []string{w.home}, os.Getenv)
			if err != nil {
				t.Fatal(err)
			}
			p.program = filepath.Join(t.TempDir(), "bwrap")
			if err := os.WriteFile(p.program, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			out, code := w.start(t, p, `echo it runs; echo x >"$OUT/file"`)
			if code == 0 || !strings.Contains(out, tt.want) || strings.Contains(out, "it runs") ||
				w.content("out/file") != "content of out/file\n" {
				t.Errorf("exit code %d, %s; want %q", code, out, tt.want)
			}
		})
	}
}

// TestOutdated has a socket go between the plan and the start.
func TestOutdated(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	l, err := net.Listen("unix", w.out+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	plan := func() Plan {
		p, err := New(w.policy, Bubblewrap, []string{w.home}, os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan()
	if p.Outdated() {
		t.Error("the plan is outdated at once")
	}
	p.program = filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(p.program, []byte("#!/bin/sh\nrm \"$OUT/socket\"; exec bwrap \"$@\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if out, code := w.start(t, p, "echo it runs"); code == 0 || strings.Contains(out, "it runs") ||
		!p.Outdated() {
		t.Errorf("exit code %d, %s; the plan is outdated: %t", code, out, p.Outdated())
	}
	if out, code := w.start(t, plan(), "echo it runs"); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestWhoseBubblewrap refuses a bwrap that other users can replace.
func TestWhoseBubblewrap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make programs of root's")
	}
	w := newWorld(t)
	put := func(name string, mode os.FileMode, uid int) string {
		name = filepath.Join(w.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name,
			[]byte("#!/bin/sh\n"), 0o755), os.Chmod(name, mode), os.Chown(name, uid, uid)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := put("good/bwrap", 0o755, 0)
	for name, tt := range map[string]struct {
		candidate, want string
	}{
		"missing":                         {w.root + "/no/bwrap", "not installed"},
		"a directory":                     {w.root, "is not a program"},
		"not executable":                  {put("plain/bwrap", 0o644, 0), "is not a program"},
		"another user's":                  {put("theirs/bwrap", 0o755, nobody), "belongs to user 65534"},
		"one that others may change":      {put("open/bwrap", 0o777, 0), "others than root may change"},
		"one in a directory of another's": {put("directory/bwrap", 0o755, 0), "belongs to user 65534"},
	} {
		if name == "one in a directory of another's" {
			if err := os.Chown(filepath.Dir(tt.candidate), nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := findBubblewrap([]string{tt.candidate}); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: found %q, %v; want %q", name, found, err, tt.want)
		}
		if found, err := findBubblewrap([]string{tt.candidate, good}); err != nil || found != good {
			t.Errorf("%s, and a good one: found %q, %v", name, found, err)
		}
	}
	// What is first in PATH is not one of them.
	t.Setenv("PATH", filepath.Dir(good))
	if slices.Contains(bubblewraps, good) {
		t.Error("it is looked for in PATH")
	}
}

func TestHint(t *testing.T) {
	for _, s := range kernelSettings {
		dir := t.TempDir()
		name := filepath.Join(dir, s.file)
		other := map[string]string{"0": "1", "1": "0"}[s.value]
		for value, want := range map[string]string{s.value + "\n": s.hint, other + "\n": "", "": ""} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(value),
				0o644)); err != nil {
				t.Fatal(err)
			}
			if got := hint(dir); got != want {
				t.Errorf("%s is %q: %q", s.file, value, got)
			}
		}
	}
}

func TestScanSockets(t *testing.T) {
	table := `Num       RefCount Protocol Flags    Type St Inode Path
000000004daacf47: 00000003 00000000 00000000 0001 03 32694317 /run/a b.sock
00000000ad28773e: 00000003 00000000 00000000 0001 03  1600
000000004823add9: 00000003 00000000 00010000 0001 01 32694315 @abstract
00000000ad348746: 00000002 00000000 00010000 0001 01 50045174 relative
00000000ad348746: 00000002 00000000 00010000 0001 01 50045174 /x
broken
`
	if got := scanSockets(strings.NewReader(table)); !slices.Equal(
		got, []string{"/run/a b.sock", "/x", "relative"},
	) {
		t.Errorf("found %q", got)
	}
}

// FuzzScanSockets has any table.
func FuzzScanSockets(f *testing.F) {
	f.Add([]byte("a b c d e f g /h\n\n /"))
	f.Fuzz(func(t *testing.T, table []byte) {
		for _, name := range scanSockets(bytes.NewReader(table)) {
			if name == "" || name[0] == '@' || !bytes.Contains(table, []byte(name)) {
				t.Errorf("found %q", name)
			}
		}
	})
}

// FuzzPointer has any file .git.
func FuzzPointer(f *testing.F) {
	f.Add([]byte("gitdir: ../x\n"))
	f.Add([]byte("gitdir: \x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(dir, ".git")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if own, common, ok := linked(file); ok {
			t.Errorf("it leads to %q and %q", own, common)
		}
	})
}
