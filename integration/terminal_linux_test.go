package integration_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// remoteSetUps return the flags and the variables for environments of a host and in containers.
var remoteSetUps = map[string]func(t *testing.T) (flags, vars []string){
	"ssh": func(t *testing.T) (flags, vars []string) {
		return hostFlags(sshd(t, daemons.SSHDConfig{})), nil
	},
	"docker": func(t *testing.T) (flags, vars []string) {
		d := sharedDocker(t)
		d.need(t, daemons.Debian)
		return []string{"--env=docker", "--image=" + daemons.Debian}, []string{"DOCKER_HOST=" + d.host}
	},
}

// TestTerminal has exec give a command a terminal in remote environments: it has the size of the
// user's terminal and follows it, and ^C reaches the command and not the program.
func TestTerminal(t *testing.T) {
	t.Parallel()
	const script = `stty size; trap 'echo; stty size; exit 5' INT; trap 'echo resized' WINCH; echo ` +
		`ready; while :; do sleep 0.05; done`
	for name, setUp := range remoteSetUps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags, vars := setUp(t)
			cmd := exec.CommandContext(t.Context(), command(t), append(append([]string{"exec", "-t"},
				flags...), "--", "bash", "-c", script)...)
			cmd.Env = append(append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir()), vars...)
			screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 91})
			if err != nil {
				t.Fatal(err)
			}
			defer screen.Close() //nolint:errcheck // the program has ended
			seen, done := readScreen(screen)
			await(t, "the first size", func() bool {
				return strings.Contains(seen.String(), "33 91\r\nready")
			})
			if err := pty.Setsize(screen, &pty.Winsize{Rows: 44, Cols: 122}); err != nil {
				t.Fatal(err)
			}
			await(t, "the other size", func() bool { return strings.Contains(seen.String(), "resized") })
			if _, err := screen.Write([]byte("\x03")); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code is checked
			<-done
			if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(seen.String(), "44 122") {
				t.Errorf("exit code %d, the screen is %q", code, seen.String())
			}
		})
	}
}
