package attack_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// nobody is the user that attacks.
const nobody = 65534

// victim is an ordinary user who works in a directory that all may look into.
type victim struct {
	uid              int
	base, home, work string
	program, path    string
}

// newVictim makes a user without an account, with an umask that hides nothing.
func newVictim(t *testing.T) *victim {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become two other users")
	}
	base, err := os.MkdirTemp("", "sandboxagent-user-") //nolint:usetesting // others must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	v := &victim{
		uid: 61000 + rand.IntN(4000), base: base, home: filepath.Join(base, "home"),
		work: filepath.Join(base, "work"), program: filepath.Join(base, "sandboxagent"),
		path: os.Getenv("PATH"),
	}
	err = errors.Join(os.Chmod(base, 0o755), os.Mkdir(v.home, 0o755), os.Mkdir(v.work, 0o755),
		os.Chown(v.home, v.uid, v.uid), os.Chown(v.work, v.uid, v.uid),
		os.Mkdir(filepath.Join(base, "bin"), 0o755), os.Mkdir(filepath.Join(base, "tmp"), 0o777),
		os.Chmod(filepath.Join(base, "tmp"), 0o777|os.ModeSticky))
	const tools = "sh touch id ls head readlink grep tr find mkdir chmod ln mkfifo"
	for tool := range strings.FieldsSeq(tools) {
		if name, lerr := exec.LookPath(tool); lerr == nil {
			err = errors.Join(err, os.Symlink(name, filepath.Join(base, "bin", tool)))
		}
	}
	install := exec.CommandContext(t.Context(), "install", "-m", "755",
		built(t, "cmd/sandboxagent", runtime.GOARCH), v.program)
	if out, ierr := install.CombinedOutput(); err != nil || ierr != nil {
		t.Fatalf("%v, %v\n%s", err, ierr, out)
	}
	v.write(t, filepath.Join(v.home, "model.yaml"), `turns:
  - calls: [{tool: shell, args: {command: "touch ran"}}]
  - text: ok
`)
	return v
}

// write writes a file of the user.
func (v *victim) write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name, []byte(content), 0o600),
		os.Chown(name, v.uid, v.uid)); err != nil {
		t.Fatal(err)
	}
}

// as makes a command of a user, without an umask, in the directory of the victim.
func (v *victim) as(t *testing.T, uid int, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `umask 0; exec "$@"`, "sh"},
		argv...)...)
	cmd.Dir = v.work
	cmd.Env = []string{
		"PATH=" + v.path, "HOME=" + v.home, "TMPDIR=" + filepath.Join(v.base, "tmp"),
	}
	id := uint32(uid) //nolint:gosec // it fits
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	return cmd
}

// look tries to read and to change what a user has: files, processes, their variables, memory and
// arguments. It prints a line for each success.
const look = `
for d in /proc/[0-9]*; do
	grep -q "^Uid:.$VICTIM" $d/status 2>/dev/null || continue
	for f in environ mem maps auxv io; do
		[ -n "$(head -c 1 $d/$f 2>/dev/null | tr '\0' x)" ] && echo "$d/$f can be read"
	done
	for l in cwd root exe; do
		readlink $d/$l >/dev/null && echo "$d/$l can be followed"
	done
	ls $d/fd >/dev/null 2>&1 && echo "$d/fd can be listed"
	tr '\0' ' ' <$d/cmdline | grep -q "$SECRET" && echo "$d has a secret argument"
	kill -0 ${d#/proc/} 2>/dev/null && echo "$d gets signals"
	(: >$d/oom_score_adj) 2>/dev/null && echo "$d can be changed"
done
find "$BASE" /dev/shm /tmp/sandboxagent-$VICTIM* -user $VICTIM '(' -readable -o -writable ')' \
	! -path "$BASE/home" ! -path "$BASE/work*" 2>/dev/null
true`

// looks returns what a user gets by look.
func (v *victim) looks(t *testing.T, uid int) string {
	t.Helper()
	cmd := v.as(t, uid, "sh", "-c", look)
	cmd.Env = append(cmd.Env, fmt.Sprint("VICTIM=", v.uid), "SECRET="+secret, "BASE="+v.base)
	out, err := cmd.Output()
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

// sshFlags starts a host that v may log in to, and returns the flags for it. The commands of v find
// no program ssh, which refuses users without an account.
func (v *victim) sshFlags(t *testing.T) []string {
	t.Helper()
	v.path = filepath.Join(v.base, "bin")
	key, _ := newHostKey(t)
	user, private := newHostKey(t)
	h := &host{home: v.home, uid: v.uid}
	h.start(t, key, user.PublicKey())
	here, port, _ := net.SplitHostPort(h.address)
	known := fmt.Sprintf("[%s]:%s %s", here, port, gossh.MarshalAuthorizedKey(key.PublicKey()))
	v.write(t, filepath.Join(v.home, "key"), string(private))
	v.write(t, filepath.Join(v.home, "known"), known)
	t.Cleanup(func() {
		left, _ := filepath.Glob(fmt.Sprintf("/tmp/sandboxagent-%d*", v.uid))
		for _, dir := range left {
			_ = os.RemoveAll(dir)
		}
	})
	return []string{
		"--env=ssh", "--host=user@" + h.address, "--identity=" + filepath.Join(v.home, "key"),
		"--known-hosts=" + filepath.Join(v.home, "known"), "--workdir=" + v.work, "--ttl=2s",
	}
}

// TestOtherUser lets another user look at a user's session. It gets nothing, and the session goes
// on; the user gets all of it.
func TestOtherUser(t *testing.T) {
	long(t)
	for name, flags := range map[string]func(*testing.T, *victim) []string{
		"with a sandbox":    func(*testing.T, *victim) []string { return []string{"--sandbox=auto"} },
		"without a sandbox": func(*testing.T, *victim) []string { return []string{"--sandbox=off"} },
		"over SSH":          func(t *testing.T, v *victim) []string { return v.sshFlags(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t)
			more := flags(t, v)
			if out, err := v.as(t, v.uid, append([]string{
				v.program, "run", "--yes",
				"--model=script:" + filepath.Join(v.home, "model.yaml"), "a task",
			}, more...)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := v.as(t, v.uid, append(append([]string{v.program, "exec", "--pass-var=TOKEN"}, more...),
				"--", "sh", "-c", "echo ready; read -r line; echo $line")...)
			cmd.Env = append(cmd.Env, "TOKEN="+secret, "SANDBOXAGENT_API_KEY="+secret)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "ready" {
				t.Errorf("the command prints %q", lines.Text())
			}
			if got := v.looks(t, nobody); got != "" {
				t.Errorf("another user gets\n%s", got)
			}
			if got := v.looks(t, v.uid); !strings.Contains(got, "environ can be read") ||
				!strings.Contains(got, "gets signals") || !strings.Contains(got, "/sessions/") {
				t.Errorf("the user gets only\n%s", got)
			}
			_, _ = in.Write([]byte("the end\n"))
			_ = in.Close()
			if !lines.Scan() || lines.Text() != "the end" {
				t.Errorf("the command ends with %q", lines.Text())
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPlantedDirectory opens a session on a host where another user has taken the name of the
// directory for the sockets.
func TestPlantedDirectory(t *testing.T) {
	long(t)
	for name, plant := range map[string]string{
		"directory":             `mkdir -m 777 "$0"`,
		"symlink":               `mkdir -m 777 "$0.trap" && ln -s "$0.trap" "$0"`,
		"symlink to the user's": `ln -s "$HOME" "$0"`,
		"file":                  `: >"$0"`,
		"FIFO":                  `mkfifo -m 666 "$0"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t)
			flags := v.sshFlags(t)
			planted := fmt.Sprintf("/tmp/sandboxagent-%d", v.uid)
			if out, err := v.as(t, nobody, "sh", "-c", plant, planted).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := v.as(t, v.uid, append(append([]string{v.program, "exec", "--sandbox=off"}, flags...),
				"--", "sh", "-c",
				"id -u; ls -d "+planted+"*/e-*")...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), planted+".") ||
				strings.Contains(string(out), planted+"/") || strings.Contains(string(out), ".trap/") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestStateOfAnotherUser runs a model without a sandbox, with a state directory in which another
// user has allowed that. Nothing is done.
func TestStateOfAnotherUser(t *testing.T) {
	long(t)
	for _, tt := range []struct {
		mode, consent string
		code          int
	}{{"777", "--yes=false", 2}, {"755", "--yes=false", 2}, {"755", "--yes", 6}} {
		t.Run(tt.mode+tt.consent, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t)
			state := filepath.Join(v.base, "tmp", "state")
			script := `mkdir -p -m ` + tt.mode + ` "$0" "$0/sessions" &&
				echo "[\"$PWD\"]" >"$0/allowed-directories.json" && chmod ` + tt.mode + ` "$0" "$0"/*`
			if out, err := v.as(t, nobody, "sh", "-c", script, state).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := v.as(t, v.uid, v.program, "run", "--sandbox=off", tt.consent,
				"--model=script:"+filepath.Join(v.home, "model.yaml"), "a task")
			cmd.Env = append(cmd.Env, "SANDBOXAGENT_STATE_DIR="+state)
			out, _ := cmd.CombinedOutput() // the code tells
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d\n%s", code, out)
			}
			if _, err := os.Stat(filepath.Join(v.work, "ran")); err == nil {
				t.Error("the model ran a command")
			}
		})
	}
}
