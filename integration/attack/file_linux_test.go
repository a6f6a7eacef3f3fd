package attack_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A world is the surroundings of one attack.
type world struct {
	// root holds all: work, the working directory and a repository; out, a directory that commands
	// may read; home, with secrets.
	root string
	vars []string
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{root: t.TempDir()}
	for name, content := range map[string]string{
		"out/file": "outside\n", "out/dir/file": "outside\n", "work/file": "work\n",
		"home/.ssh/id_ed25519": secret, "home/.netrc": secret, "home/.aws/credentials": secret,
		"home/.config/gh/hosts.yml": secret, "home/notes.txt": secret,
	} {
		name = filepath.Join(w.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	w.vars = []string{
		"HOME=" + w.root + "/home", "ATTACK_API_KEY=" + secret, "OUT=" + w.root + "/out",
		"GIT_CONFIG_NOSYSTEM=1", fmt.Sprint("RENAMEAT2=", unix.SYS_RENAMEAT2),
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `git init -q --template= .
		mkdir .git/hooks && git add file &&
		git -c user.name=A -c user.email=a@example.com commit -q -m first && : >.git/hooks/pre-commit`)
	cmd.Dir, cmd.Env = w.work(), append(os.Environ(), w.vars...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

func (w world) work() string { return filepath.Join(w.root, "work") }

// state describes what no command may change: all names outside of the working directory with their
// contents, and the hooks and settings of the repository.
func (w world) state(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(w.root, func(name string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.root, name)
		switch {
		case err != nil:
			return err
		case rel == "home/.cache" || rel == "home/.local": // the program's own
			return fs.SkipDir
		case rel == "work/.git", rel == "work/.git/hooks", rel == "work/.git/config",
			strings.HasPrefix(rel, "work/.git/hooks/"):
		case strings.HasPrefix(rel, "work/.git/"):
			return nil
		case strings.HasPrefix(rel, "work/"):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		fmt.Fprintf(&all, "%s %s", rel, e.Type())
		if e.Type().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, " %q", data)
		}
		all.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// writes are ways to change what a command may not. The ones of git succeed under Landlock alone,
// as the guarantee kept-hooks says.
var writes = map[string]struct {
	script string
	git    bool
}{
	"directly":         {script: `echo x >"$OUT/file"`},
	"relative":         {script: `cd "$OUT" && echo x >file`},
	"append":           {script: `echo x >>"$OUT/file"`},
	"cut":              {script: `truncate -s 0 "$OUT/file"`},
	"in place":         {script: `sed -i s/o/x/ "$OUT/file"`},
	"remove":           {script: `rm -f "$OUT/file"`},
	"remove all":       {script: `rm -rf "$OUT/dir"`},
	"new file":         {script: `: >"$OUT/new"`},
	"new directory":    {script: `mkdir "$OUT/new"`},
	"new fifo":         {script: `mkfifo "$OUT/new"`},
	"new symlink":      {script: `ln -s / "$OUT/new"`},
	"new hard link":    {script: `ln file "$OUT/new"`},
	"link to a file":   {script: `ln -s "$OUT/file" l && echo x >l`},
	"link to a folder": {script: `ln -s "$OUT" l && echo x >l/new`},
	"hard link":        {script: `ln "$OUT/file" l && echo x >l`},
	"moved in":         {script: `mv "$OUT/file" l && echo x >l`},
	"moved out":        {script: `mv file "$OUT/new"`},
	"moved over":       {script: `mv -f file "$OUT/file"`},
	"folder moved in":  {script: `mv "$OUT/dir" d && echo x >d/file`},
	"own folder moved": {script: `mv "$PWD" "$OUT/work"`},
	"exchanged": {script: `perl -e 'my @n = ("file", "$ENV{OUT}/file");
		exit !!syscall('"$RENAMEAT2"', -100, $n[0], -100, $n[1], 2)'`},
	"root of a process": {script: `echo x >"/proc/self/root$OUT/file"`},
	"root of others":    {script: `for p in /proc/[0-9]*; do echo x >"$p/root$OUT/file"; done`},
	"descriptor":        {script: `exec 3<"$OUT/file"; echo x >/proc/self/fd/3`},
	"dev fd":            {script: `exec 3<"$OUT/file"; echo x >/dev/fd/3`},
	"standard input":    {script: `sh -c 'echo x >/dev/stdin' <"$OUT/file"`},
	"folder descriptor": {script: `exec 3<"$OUT"; echo x >/proc/self/fd/3/new`},
	"path descriptor": {
		script: `perl -e 'sysopen F, "$ENV{OUT}/file", 010000000; exec "sh", "-c",
			"echo x >/proc/self/fd/".fileno F' || exec 3<"$OUT/file" && echo x >/proc/self/fd/3`,
	},
	"archive": {script: `mkdir a && echo x >a/new && tar cf a.tar -C a new &&
		tar xf a.tar -C "$OUT"`},
	"absolute names": {script: `mkdir a && echo x >a/file &&
		tar cf a.tar --transform "s,.*,$OUT/file," -P a/file && tar xPf a.tar`},
	"copy": {script: `cp file "$OUT/new"`},
	"patch": {
		script: `printf -- '--- a\n+++ b\n@@ -1 +1 @@\n-outside\n+x\n' >p && patch "$OUT/file" p`,
	},
	"git there":    {script: `git -C "$OUT" init -q`},
	"git worktree": {script: `git worktree add -q "$OUT/new"`},
	"git clone":    {script: `git clone -q . "$OUT/new"`},
	"secrets":      {script: `echo x >>"$HOME/.ssh/authorized_keys"`},
	"start files":  {script: `echo x >>"$HOME/.profile"`},
	"a namespace": {
		script: `for u in --user ""; do unshare $u --mount sh -c '
			mount -o remount,bind,rw /; umount "$OUT"; echo x >"$OUT/file"'; done`,
	},
	"hook":     {script: `echo x >.git/hooks/pre-commit`, git: true},
	"new hook": {script: `echo x >.git/hooks/post-commit`, git: true},
	"hooks replaced": {script: `mv .git/hooks .git/h && mkdir .git/hooks &&
		echo x >.git/hooks/pre-push`, git: true},
	"hooks by a link": {script: `ln -s .git/hooks h && echo x >h/pre-push`, git: true},
	"hook by rename":  {script: `echo x >h && mv h .git/hooks/pre-commit`, git: true},
	"settings":        {script: `git config core.fsmonitor ./x`, git: true},
	"settings moved":  {script: `cp .git/config c && echo x >>c && mv c .git/config`, git: true},
	"settings lock": {script: `cp .git/config .git/config.lock && echo x >>.git/config.lock &&
		mv .git/config.lock .git/config`, git: true},
	".git moved": {script: `mv .git g && mkdir .git && cp g/config .git/config &&
		echo x >>.git/config`, git: true},
	".git a file": {script: `mv .git g && echo "gitdir: g" >.git && cp -r g/hooks .`, git: true},
}

// TestWrites changes what commands may not, by names, links, descriptors, processes and programs.
func TestWrites(t *testing.T) {
	long(t)
	for _, b := range sandboxes(t) {
		for name, w := range writes {
			t.Run(b.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if w.git && b.name == "Landlock" {
					t.Skip("kept-hooks is not a guarantee of Landlock alone")
				}
				bare := newWorld(t)
				before := bare.state(t)
				if out := bare.bare(t, w.script); bare.state(t) == before {
					t.Fatalf("it does not work outside either: %s", out)
				}
				at := newWorld(t)
				before = at.state(t)
				got := at.exec(t, b, w.script)
				if after := at.state(t); after != before {
					t.Errorf("%s\nbefore:\n%s\nafter:\n%s", got, before, after)
				}
			})
		}
	}
}

// bare runs a script as root without a sandbox.
func (w world) bare(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = w.work(), append(os.Environ(), w.vars...)
	out, _ := cmd.CombinedOutput() // its effect counts
	return string(out)
}

// exec runs a script in a sandbox.
func (w world) exec(t *testing.T, b backend, script string) ran {
	t.Helper()
	b.vars = append(b.vars, w.vars...)
	return b.exec(t, w.work(), nil, script)
}

// reads are ways to a secret. Each prints one without a sandbox.
var reads = map[string]string{
	"directly":         `cat "$HOME/.ssh/id_ed25519"`,
	"relative":         `cd "$HOME" && cat .netrc`,
	"anything at home": `cat "$HOME/notes.txt"`,
	"link":             `ln -s "$HOME/.netrc" l && cat l`,
	"folder link":      `ln -s "$HOME" l && cat l/.aws/credentials`,
	"hard link":        `ln "$HOME/.netrc" l && cat l`,
	"moved in":         `mv "$HOME/.netrc" l && cat l`,
	"copy":             `cp "$HOME/.netrc" l && cat l`,
	"archive":          `tar cf - -C "$HOME" . | tr '\0' '\n'`,
	"dotdot":           `cat ../home/.netrc`,
	"search":           `grep -rh sk-attack "$OUT/.." 2>/dev/null`,
	"find":             `find "$OUT/.." -name id_ed25519 -exec cat {} +`,
	"git":              `git diff --no-index /dev/null "$HOME/.netrc"`,
	"git object":       `git cat-file -p "$(git hash-object -w "$HOME/.netrc")"`,
	"root of a process": `for p in /proc/self /proc/[0-9]*; do cat "$p/root$HOME/.netrc"; done
		2>/dev/null`,
	"folder of others": `for p in /proc/[0-9]*; do cat "$p/cwd/../home/.netrc"; done 2>/dev/null`,
	"a namespace": `unshare --user --map-root-user --mount sh -c '
			mount --bind "$HOME" . && cat .netrc' ||
		unshare --mount sh -c 'umount -l "$HOME"; cat "$HOME/.netrc"'`,
	"another root":  `chroot / cat "$HOME/.netrc"`,
	"variables":     `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -a ^ATTACK_`,
	"own variables": `env | grep ^ATTACK_`,
}

// TestReads reads secrets of the home, and the program's variables.
func TestReads(t *testing.T) {
	long(t)
	for _, b := range sandboxes(t) {
		for name, script := range reads {
			t.Run(b.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if out := newWorld(t).bare(t, script); !strings.Contains(out, secret) {
					t.Fatalf("it does not work outside either: %s", out)
				}
				if got := newWorld(t).exec(t, b, script); got.contains(secret) {
					t.Errorf("it is read: %s", got)
				}
			})
		}
	}
}

// opens are files of the kernel and of other processes, with the way to open them.
var opens = map[string]string{
	"/proc/sys/kernel/core_pattern": ">>", "/proc/sys/kernel/hostname": ">>",
	"/proc/sys/kernel/modprobe": ">>", "/proc/sys/vm/drop_caches": ">>",
	"/proc/sys/net/ipv4/ip_forward": ">>", "/proc/sys/fs/suid_dumpable": ">>",
	"/proc/sysrq-trigger": ">>", "/proc/kcore": "<", "/proc/kmsg": "<",
	"/proc/1/mem": "<>", "/proc/1/environ": "<", "/proc/1/auxv": "<", "/proc/1/maps": "<",
	"/proc/1/oom_score_adj": ">>", "/proc/1/clear_refs": ">>", "/proc/1/coredump_filter": ">>",
	"/proc/irq/default_smp_affinity": ">>", "/proc/mtrr": ">>", "/proc/asound": "<",
	"/sys/kernel/profiling": ">>", "/sys/kernel/mm/ksm/run": ">>", "/sys/fs/cgroup/cgroup.procs": ">>",
	"/sys/fs/cgroup/cgroup.subtree_control": ">>", "/sys/power/state": ">>",
	"/sys/module/kernel/parameters/panic": ">>", "/dev/kmsg": "<", "/dev/mem": "<", "/dev/vsock": "<",
	"/dev/vda": "<", "/dev/sda": "<", "/dev/nvme0n1": "<", "/dev/fuse": "<", "/dev/kvm": "<",
	"/dev/net/tun": "<", "/dev/loop-control": "<", "/dev/ttyS0": "<", "/dev/rtc0": "<",
}

// refusedOpen matches the reason of a shell for a file that it may not open, or that is not there.
var refusedOpen = regexp.MustCompile(`(?i)denied|not permitted|read-only|no such|nonexistent`)

// TestKernelFiles opens files with which the kernel, or another process, is read or changed.
func TestKernelFiles(t *testing.T) {
	long(t)
	eachBackend(t, func(t *testing.T, b backend) {
		proven := 0
		var script strings.Builder
		for name, way := range opens {
			line := fmt.Sprintf("(exec 3%s%s) && echo 'opened %s'\n", way, name, name)
			if exec.CommandContext(t.Context(), "sh", "-c", line).Run() == nil {
				proven++
			}
			script.WriteString(line)
		}
		if proven < 20 {
			t.Fatalf("only %d files can be opened outside", proven)
		}
		got := b.exec(t, t.TempDir(), nil, script.String()+"true")
		if got.code != 0 || strings.Contains(got.stdout, "opened") {
			t.Error(got)
		}
		if n := len(refusedOpen.FindAllString(got.stderr, -1)); n < len(opens) {
			t.Errorf("%d of %d are refused: %s", n, len(opens), got)
		}
	})
}
