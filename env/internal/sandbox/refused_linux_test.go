package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// ways out of a sandbox, which succeed for root without one.
var ways = map[string]struct {
	script    string
	guarantee env.GuaranteeName
	// passes, if set, means that Landlock allows it: its guarantee contains this word, or is absent.
	passes string
	// alone means that it is not tried without a sandbox: it would change the machine, or not every
	// machine has the programs.
	alone bool
	// silent means that it fails without an error message.
	silent bool
}{
	"write outside":       {script: `echo x >"$OUT/file"`, guarantee: env.ConfinedWrites},
	"make a file outside": {script: `echo x >"$OUT/new"`, guarantee: env.ConfinedWrites},
	"make a file at home": {script: `echo x >"$HOME/.profile"`, guarantee: env.ConfinedWrites},
	"cut short outside":   {script: `truncate -s 0 "$OUT/file"`, guarantee: env.ConfinedWrites},
	"remove outside":      {script: `rm -f "$OUT/file"`, guarantee: env.ConfinedWrites},
	"rename outside":      {script: `mv "$OUT/file" "$OUT/new"`, guarantee: env.ConfinedWrites},
	"a mode outside": {
		script:    `chmod 700 "$OUT/file"`,
		guarantee: env.ConfinedWrites,
		passes:    "modes",
	},
	"a time outside": {
		script:    `touch -d 2001-01-01 "$OUT"`,
		guarantee: env.ConfinedWrites,
		passes:    "times",
	},
	"make a directory outside": {script: `mkdir "$OUT/new"`, guarantee: env.ConfinedWrites},
	"write by a link": {
		script:    `ln -s "$OUT/file" "$WORK/link" && echo x >"$WORK/link"`,
		guarantee: env.ConfinedWrites,
	},
	"write by a hard link": {
		script:    `ln "$OUT/file" "$WORK/hard" && echo x >"$WORK/hard"`,
		guarantee: env.ConfinedWrites,
	},
	"move the directory of work": {script: `mv "$WORK" "$OUT/work"`, guarantee: env.ConfinedWrites},
	"write by a descriptor": {
		script:    `exec 3<"$OUT/file"; echo x >/proc/self/fd/3`,
		guarantee: env.ConfinedWrites,
	},
	"read a key": {script: `cat "$HOME/.ssh/id"`, guarantee: env.HiddenSecrets},
	"read a password": {
		script:    `cat "$HOME/.netrc" && grep -q . "$HOME/.netrc"`,
		guarantee: env.HiddenSecrets,
		silent:    true,
	},
	"list keys": {
		script:    `ls "$HOME/.ssh/" && ls "$HOME/.ssh/" | grep -q .`,
		guarantee: env.HiddenSecrets,
		silent:    true,
	},
	"read a key by /proc": {
		script:    `cat "/proc/1/root$HOME/.ssh/id"`,
		guarantee: env.HiddenSecrets,
		alone:     true,
	},
	"read a key by a link": {
		script:    `ln -s "$HOME/.ssh/id" "$WORK/key" && cat "$WORK/key"`,
		guarantee: env.HiddenSecrets,
	},
	"mount":            {script: `$DO mount "$WORK"`, guarantee: env.NoNewRights},
	"a user namespace": {script: `$DO userns`, guarantee: env.NoNewRights},
	"unmount": {
		script:    `umount "$HOME/.ssh" || umount -l /proc`,
		guarantee: env.NoNewRights,
	},
	"a set-id program": {
		script:    `cp /bin/sh "$WORK/sh" && chmod u+s "$WORK/sh"`,
		guarantee: env.NoNewRights,
	},
	"a set-group-id file": {
		script:    `umask 0; : >"$WORK/sh" && chmod 2755 "$WORK/sh" && [ -g "$WORK/sh" ]`,
		guarantee: env.NoNewRights,
	},
	"a set-id program at once": {
		script:    `install -m 4755 /bin/sh "$WORK/sh" && [ -u "$WORK/sh" ]`,
		guarantee: env.NoNewRights,
	},
	"a file opened as set-id":  {script: `$DO opensuid "$WORK/suid"`, guarantee: env.NoNewRights},
	"a set-id program outside": {script: `chmod u+s "$OUT/file"`, guarantee: env.NoNewRights},
	"attach to the helper":     {script: `$DO ptrace "$CONFINED"`, guarantee: env.Isolation},
	"memory of process 1": {
		script:    `head -c 1 /proc/1/mem || : >>/proc/1/mem`,
		guarantee: env.Isolation,
		alone:     true,
	},
	"memory of the helper": {
		script:    `head -c 1 "/proc/$CONFINED/mem" || : >>"/proc/$CONFINED/mem"`,
		guarantee: env.Isolation,
	},
	"variables of process 1": {
		script:    `cat /proc/1/environ`,
		guarantee: env.Isolation,
		alone:     true,
	},
	"a setting of the kernel": {
		script:    `cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern`,
		guarantee: env.ConfinedWrites,
	},
	"a setting in sysfs": {
		script:    `echo 1 >/sys/kernel/profiling || mkdir /sys/fs/cgroup/sandbox-test`,
		guarantee: env.ConfinedWrites,
		alone:     true,
	},
	"a device": {script: `mknod "$WORK/null" c 1 3`, guarantee: env.NoNewRights},
	"a disk": {
		script: `for d in /dev/sd* /dev/vd* /dev/nvme* /dev/loop* /dev/mem; do if [ -e "$d" ] && ` +
			`head -c 1 "$d"; then exit 0; fi; done; exit 1`,
		guarantee: env.HiddenSecrets,
		alone:     true,
		silent:    true,
	},
	"edit a hook": {
		script:    `echo x >"$WORK/.git/hooks/post-commit"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"edit settings of git": {
		script:    `echo x >>"$WORK/.git/config"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"another .git": {
		script:    `mv "$WORK/.git" "$WORK/old"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"other hooks": {
		script:    `mv "$WORK/.git/hooks" "$WORK/.git/old"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"edit our settings": {
		script:    `echo x >>"$WORK/sandboxagent.yaml"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"replace our settings": {
		script:    `echo x >"$WORK/new" && mv "$WORK/new" "$WORK/sandboxagent.yaml"`,
		guarantee: env.KeptHooks,
		passes:    "Landlock",
	},
	"another machine by vsock": {script: `$DO vsock`, guarantee: env.NoNetwork, alone: true},
	"other processes are seen": {
		script:    `[ -d "/proc/$VICTIM" ]`,
		guarantee: env.HiddenProcesses,
		passes:    "seen",
		silent:    true,
	},
}

// refused matches the messages of programs for a refusal.
var refused = regexp.MustCompile(
	`(?i)permission denied|not permitted|read-only file system|no such file|busy|must be ` +
		`superuser|cross-device`,
)

// TestRefused tries each way out. The guarantees of Landlock name those that it cannot refuse. Each
// way succeeds without a sandbox.
func TestRefused(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := strings.ReplaceAll(way.script, "$VICTIM", strconv.Itoa(os.Getpid()))
			each(t, func(t *testing.T, w *world, by Mechanism) {
				passes := way.passes != "" && by == Landlock
				plan := w.plan(t, by)
				all := plan.Guarantees()
				i := slices.IndexFunc(all, func(g env.Guarantee) bool { return g.Name == way.guarantee })
				switch {
				case i < 0 || all[i].By == "":
					t.Errorf("%s has no guarantee, or no enforcer", way.guarantee)
				case passes && !strings.Contains(all[i].By, way.passes),
					!passes && all[i].Strength == env.Absent:
					t.Errorf("it passes: %t, and the guarantee is %+v", passes, all[i])
				}
				before := w.protected()
				out, code := w.start(t, plan, script)
				if (code == 0) != passes || code == 125 {
					t.Errorf("exit code %d, %s", code, out)
				}
				if !passes && !way.silent && !refused.MatchString(out) {
					t.Errorf("it has failed for another reason: %s", out)
				}
				if strings.Contains(out, "content of home/.") {
					t.Errorf("printed %q", out)
				}
				after := w.protected()
				if before != after && !passes {
					t.Errorf("the files were\n%s\nand are\n%s", before, after)
				}
				for _, name := range []string{"out/new", "home/.profile", "out/work"} {
					if exists(filepath.Join(w.root, name)) {
						t.Errorf("%s was created", name)
					}
				}
			})
			if way.alone || os.Getuid() != 0 {
				return
			}
			if out, code := newWorld(t).bare(t, script); code != 0 {
				t.Errorf("without a sandbox it fails too: exit code %d, %s", code, out)
			}
		})
	}
}

// protected returns the content of files that no sandbox may change.
func (w *world) protected() (all string) {
	for _, name := range []string{
		"out/file", "home/.ssh/id", "work/.git/config", "work/sandboxagent.yaml",
	} {
		all += w.content(name)
	}
	return all
}
