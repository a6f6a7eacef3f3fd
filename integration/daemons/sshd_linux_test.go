package daemons

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	if err := wait(t.Context(), stopTimeout, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// linger starts a command that stays as long as its input, and returns when it is the only process
// of the server's account.
func linger(t *testing.T, s *SSHD, command string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.Client(t), "ssh"), "-T", s.Host(),
		"echo; exec "+command)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(errors.Join(err, cmd.Wait()), s.Log())
	}
	t.Cleanup(func() {
		for _, pid := range s.Processes() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	until(t, "the command runs", func() bool {
		found := s.Processes()
		return len(found) == 1 && strings.HasPrefix(command, filepath.Base(program(found[0])))
	})
	return cmd
}

// lost checks that a client ends because it lost its connection.
func lost(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	defer time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() }).Stop() // which is another end
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 255 {
		t.Errorf("the client ends with %v", err)
	}
}

// TestSSHDLeavesNothing compares the mounts, the accounts, the directories and the processes of the
// machine before and after.
func TestSSHDLeavesNothing(t *testing.T) {
	state := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{
			"/proc/self/mountinfo", "/etc/passwd", "/etc/shadow", "/etc/group",
		} {
			text, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, os.ErrPermission) {
				t.Fatal(err)
			}
			// Other tests on the machine make mounts, too.
			lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
				return strings.HasSuffix(name, "mountinfo") && !strings.Contains(line, "sandboxagent-sshd-") &&
					!strings.Contains(line, " /etc/")
			})
			all[name] = strings.Join(lines, "")
		}
		return all
	}
	before := state()
	for _, dropbear := range []bool{false, true} {
		t.Run(fmt.Sprintf("dropbear %t", dropbear), func(t *testing.T) {
			var dir string
			var pids, processes []int
			t.Run("server", func(t *testing.T) {
				s := NewSSHD(t, SSHDConfig{Account: &Account{Home: HomeNoexec}, Dropbear: dropbear})
				dir = s.dir
				cmd := linger(t, s, "sleep 100")
				if diff := gocmp.Diff(before, state()); diff != "" {
					t.Errorf("the server has changed the machine: %s", diff)
				}
				server, _ := s.process()
				pids, processes = append(s.Sessions(), server.Process.Pid), s.Processes()
				if len(pids) != 2 {
					t.Errorf("the connections are %v", s.Sessions())
				}
				for _, pid := range pids {
					pids = append(pids, s.servers(children(pid))...)
				}
				s.Stop()
				s.Stop()
				lost(t, cmd)
				if got := s.Processes(); !gocmp.Equal(got, processes) {
					t.Errorf("the user's processes are %v, want %v", got, processes)
				}
				if got := s.Sessions(); len(got) > 0 {
					t.Errorf("sessions are left: %v", got)
				}
				if conn, err := net.Dial("tcp", s.Address()); err == nil {
					t.Error("a server listens", conn.Close())
				}
			})
			if len(processes) == 0 {
				t.Skip("no server was started")
			}
			for _, pid := range pids {
				until(t, "the server's process ends", func() bool { return program(pid) == "" })
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is left: %v", err)
			}
			if diff := gocmp.Diff(before, state()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSSHDBad starts servers with invalid configurations, which fails with the cause.
func TestSSHDBad(t *testing.T) {
	for name, tt := range map[string]struct {
		config SSHDConfig
		want   string
	}{
		"option":   {SSHDConfig{Options: []string{"Nonsense yes"}}, "Nonsense"},
		"shell":    {SSHDConfig{Account: &Account{Shell: "sh"}}, `"sh"`},
		"dropbear": {SSHDConfig{Dropbear: true}, "dropbear"},
	} {
		t.Run(name, func(t *testing.T) {
			config := tt.config.complete()
			err := config.validate()
			if err == nil {
				_, err = startSSHD(t.Context(), config)
			}
			if errors.Is(err, errNoSSHD) {
				t.Skip(err)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("a port that is taken", func(t *testing.T) {
		s := NewSSHD(t, SSHDConfig{})
		s.Stop()
		other, err := net.Listen("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close() //nolint:errcheck // it has no connections
		if err := s.Restart(); err == nil || !strings.Contains(err.Error(), taken) {
			t.Errorf("got %v", err)
		}
	})
}
