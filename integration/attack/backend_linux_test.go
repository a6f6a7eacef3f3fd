package attack_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// A backend runs commands in the directory where the attacks of a test work.
type backend struct {
	name string
	// prefix precedes the program on its command line.
	prefix []string
	// flags select the environment.
	flags, vars []string
	// inside is a process that the commands see and that is not theirs, if that is always the same.
	inside string
	// harmless maps system calls that are not refused to the reason.
	harmless map[string]string
}

// exec runs a script in dir by the program's exec, with arguments from $1 on.
func (b backend) exec(t *testing.T, dir string, flags []string, script string, args ...string) ran {
	t.Helper()
	_, wait := b.start(t, dir, flags, script, args...)
	return wait()
}

// start is exec that does not wait.
func (b backend) start(
	t *testing.T, dir string, flags []string, script string, args ...string,
) (cmd *exec.Cmd, wait func() ran) {
	t.Helper()
	all := append([]string{"exec"}, b.flags...)
	all = append(all, "--workdir="+dir)
	all = append(all, flags...)
	all = append(all, "--", "sh", "-c", script, "sh")
	return launch(t, dir, b.prefix, b.vars, append(all, args...)...)
}

// sandboxes returns the sandboxes of this machine. Landlock works alone where bubblewrap is
// missing.
func sandboxes(t *testing.T) []backend {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to hide bubblewrap, and since the attacks must succeed without a sandbox")
	}
	bwrap := exec.CommandContext(t.Context(), "bwrap", "--unshare-user", "--ro-bind", "/", "/", "true")
	if err := bwrap.Run(); err != nil {
		daemons.Missing(t, "sandbox", "bubblewrap does not work: "+err.Error())
	}
	const hide = `for p in /usr/bin/bwrap /usr/local/bin/bwrap /bin/bwrap; do
		test ! -e $p || mount --bind /dev/null $p || exit; done; exec "$@"`
	all := []backend{
		{
			name: "bubblewrap", flags: []string{"--sandbox=require"}, inside: "1",
			harmless: map[string]string{
				"kill":      "the helper belongs to the sandbox",
				"setresuid": "invalid: the user namespace has no other user",
				"setresgid": "invalid: the user namespace has no other group",
			},
		},
		{
			name: "Landlock", flags: []string{"--sandbox=require"},
			prefix: []string{"unshare", "--mount", "sh", "-c", hide, "sh"},
		},
	}
	for _, b := range all {
		if got := b.exec(t, t.TempDir(), []string{"--enforce=confined-writes"}, "true"); got.code != 0 {
			daemons.Missing(t, "sandbox", b.name+" does not work: "+got.String())
		} else if alone := strings.Contains(got.stderr, "hidden-processes"); alone != (b.prefix != nil) {
			t.Fatalf("not the sandbox of %s: %s", b.name, got)
		}
	}
	return all
}

// container returns a container of the daemon that the tests share.
func container(t *testing.T) backend {
	t.Helper()
	harmless := map[string]string{"kill": "the helper belongs to the container"}
	for _, name := range strings.Fields("fchmod fchmodat openat mkdirat mknodat O_TMPFILE " +
		"openat2 chmod open creat mkdir mknod") {
		harmless[name] = "no process of the container gains rights, and nobody outside sees the file"
	}
	harmless["fchmod g"], harmless["openat g"] = harmless["fchmod"], harmless["openat"]
	for _, name := range []string{"TIOCSTI", "TIOCLINUX"} {
		harmless[name] = "the container has no terminal of the host"
	}
	for _, name := range []string{
		"io_uring_setup", "io_uring_enter", "io_uring_register", "socket vsock",
	} {
		harmless[name] = "the filter is the daemon's: that of Docker 25 refuses it"
	}
	return backend{
		name: "docker", inside: "1", harmless: harmless,
		flags: []string{"--env=docker"}, vars: []string{"DOCKER_HOST=" + daemons.DockerHost(t)},
	}
}

// eachBackend runs a test on each backend that holds attackers in.
func eachBackend(t *testing.T, test func(t *testing.T, b backend)) {
	t.Run("sandbox", func(t *testing.T) {
		for _, b := range sandboxes(t) {
			t.Run(b.name, func(t *testing.T) { test(t, b) })
		}
	})
	t.Run("docker", func(t *testing.T) { test(t, container(t)) })
}
