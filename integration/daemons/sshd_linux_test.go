package daemons

import (
	"bytes"
	"cmp"
	"context"
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

// over runs a command through the program ssh and returns its output and its exit code.
func over(t *testing.T, s *SSHD, command string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(s.Client(t), "ssh"), "-T", s.Host(), command)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// output runs a command that must succeed and returns its standard output.
func output(t *testing.T, s *SSHD, command string) string {
	t.Helper()
	out, errs, code := over(t, s, command)
	if code != 0 {
		t.Fatalf("%s ends with %d: %s\n%s", command, code, errs, s.Log())
	}
	return out
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	if err := wait(t.Context(), stopTimeout, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// linger starts a command that stays as long as its input, and returns when it runs. Of an ordinary
// account it is then the only process.
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
	if s.config.Account != nil && !s.config.Account.Root {
		t.Cleanup(func() {
			for _, pid := range s.Processes() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		until(t, "the command runs", func() bool {
			found := s.Processes()
			return len(found) == 1 && strings.HasPrefix(command, filepath.Base(program(found[0])))
		})
	}
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

func TestSSHDUser(t *testing.T) {
	s := NewSSHD(t, SSHDConfig{
		Vars:     []string{"GREETING=hello there", "OTHER=x"},
		HostKeys: []string{"rsa", "ecdsa"},
	})
	if got, want := output(t, s, `id -un; echo "$GREETING$OTHER"`),
		s.User()+"\nhello therex\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := strings.TrimSpace(output(t, s, "cd && pwd")); got != s.Home() {
		t.Errorf("the home is %s, want %s", got, s.Home())
	}
	for kind, begins := range map[string]string{
		"rsa": "ssh-rsa AAAA", "ecdsa": "ecdsa-sha2-nistp256 AAAA", "ed25519": "",
	} {
		known, err := os.ReadFile(s.KnownHosts())
		if err != nil {
			t.Fatal(err)
		}
		key := s.HostKey(kind)
		if !strings.HasPrefix(key, begins) || (begins == "") != (key == "") ||
			!strings.Contains(string(known), "]:"+strings.TrimPrefix(s.Address(), "127.0.0.1:")+" "+key) &&
				key != "" {
			t.Errorf("the key of kind %s is %q, and known are %s", kind, key, known)
		}
	}
	if _, err := net.Dial("tcp", s.Address()); err != nil {
		t.Error(err)
	}
	if err := s.Revoke(); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := over(t, s, "true"); code != 255 || !strings.Contains(errs,
		"Permission denied") {
		t.Errorf("afterwards it ends with %d: %s", code, errs)
	}
}

func TestSSHDAccount(t *testing.T) {
	for name, c := range map[string]SSHDConfig{
		"bash":           {Account: &Account{}},
		"root with dash": {Account: &Account{Root: true, Name: "toor", Shell: "/bin/dash"}},
		"dropbear": {
			Account:  &Account{Shell: "/bin/dash", Home: HomeReadOnly},
			Dropbear: true, HostKeys: []string{"ecdsa", "rsa"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := *c.Account
			a.Profile = map[string]string{".bashrc": "export FROM_PROFILE=yes\n", "a/b/c": "deep"}
			c.Account, c.Vars = &a, []string{"GREETING=hello there", "PATH=/usr/bin:/bin"}
			s := NewSSHD(t, c)
			shell, user, profile, uid := cmp.Or(a.Shell, "/bin/bash"), cmp.Or(a.Name, "tester"), "yes", s.uid
			if a.Root {
				user, uid = cmp.Or(a.Name, "root"), 0
			}
			if shell == "/bin/dash" {
				profile = ""
			}
			if !a.Root && uid < 42_000 {
				t.Errorf("the user has the number %d", uid)
			}
			where, _ := os.Readlink(shell)
			got := strings.Split(output(t, s, `id -un; id -u; id -gn; echo "$HOME"; echo ~`+user+`
pwd; echo "$SHELL"; readlink /proc/$$/exe | sed s,.*/,,
echo "$FROM_PROFILE"; echo "$GREETING"; cat a/b/c`), "\n")
			want := []string{
				user, fmt.Sprint(uid), map[bool]string{true: "root", false: user}[a.Root], s.Home(), s.Home(),
				s.Home(), shell,
				filepath.Base(cmp.Or(where, shell)), profile, "hello there", "deep",
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if s.User() != user || !strings.HasPrefix(s.Host(), "ssh://"+user+"@127.0.0.1:") {
				t.Errorf("the user is %s, the address %s", s.User(), s.Host())
			}
		})
	}
}

func TestSSHDHome(t *testing.T) {
	for name, tt := range map[string]struct {
		account  Account
		dropbear bool
		// write and execute are parts of the errors of these operations in the home; empty for none.
		write, execute string
	}{
		"normal": {},
		"noexec, root": {
			account: Account{Home: HomeNoexec, Root: true}, execute: "ermission denied",
		},
		"read-only":          {account: Account{Home: HomeReadOnly}, write: "ead-only file system"},
		"noexec on dropbear": {Account{Home: HomeNoexec}, true, "", "ermission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.account.Profile = map[string]string{"program": "#!/bin/sh\necho it runs\n"}
			s := NewSSHD(t, SSHDConfig{Account: &tt.account, Dropbear: tt.dropbear})
			if err := os.Chmod(filepath.Join(s.Home(), "program"), 0o755); err != nil {
				t.Fatal(err)
			}
			for command, want := range map[string]string{
				"echo x > ~/new": tt.write, "~/program": tt.execute, "t=$(mktemp) && rm $t": "",
			} {
				_, errs, code := over(t, s, command)
				if (code == 0) != (want == "") || !strings.Contains(errs, want) {
					t.Errorf("%s: exit code %d, %q, want %q", command, code, errs, want)
				}
			}
			// The tests share the home.
			if _, err := os.Stat(filepath.Join(s.Home(), "new")); (err == nil) != (tt.write == "") {
				t.Errorf("the new file: %v", err)
			}
			if err := os.WriteFile(filepath.Join(s.Home(), "shared"), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, _, _ := over(t, s, "cat ~/shared"); out != "x" {
				t.Errorf("the shared file holds %q", out)
			}
		})
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
			// Other tests of the machine make mounts of their own.
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
					t.Errorf("the machine sees what only the server should: %s", diff)
				}
				server, _ := s.process()
				pids, processes = append(s.Sessions(), server.Process.Pid), s.Processes()
				if len(pids) != 2 {
					t.Errorf("the connections are %v", s.Sessions())
				}
				for _, pid := range pids {
					pids = append(pids, s.own(children(pid))...)
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
					t.Error("somebody listens", conn.Close())
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

func TestSSHDCut(t *testing.T) {
	for name, c := range map[string]SSHDConfig{
		"the user of the tests": {},
		"dropbear":              {Account: &Account{}, Dropbear: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewSSHD(t, c)
			// The command notes that it began, and ends when it is told, by a file.
			note := filepath.Join(t.TempDir(), "note")
			if c.Account != nil {
				note = filepath.Join(s.Home(), "note")
			}
			client := exec.CommandContext(t.Context(), filepath.Join(s.Client(t), "ssh"), "-T", s.Host(),
				fmt.Sprintf("echo begun > '%[1]s'; i=0; while [ $i -lt 3000 ] && ! [ -e '%[1]s.end' ]; do "+
					"sleep 0.02; i=$((i+1)); done; echo ended > '%[1]s'", note))
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			holds := func(want string) func() bool {
				return func() bool {
					text, _ := os.ReadFile(note)
					return string(text) == want+"\n"
				}
			}
			t.Cleanup(func() { _ = os.WriteFile(note+".end", nil, 0o644) })
			until(t, "the command begins", holds("begun"))
			s.Cut()
			lost(t, client)
			until(t, "the connection ends", func() bool { return len(s.Sessions()) == 0 })
			if got := output(t, s, "echo again"); got != "again\n" {
				t.Errorf("the next connection says %q", got)
			}
			if err := os.WriteFile(note+".end", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			until(t, "the command goes on", holds("ended"))
		})
	}
}

func TestSSHDRestart(t *testing.T) {
	for name, c := range map[string]SSHDConfig{
		"the user of the tests": {HostKeys: []string{"ed25519", "rsa"}},
		"dropbear": {
			Account: &Account{}, Dropbear: true, HostKeys: []string{"ed25519", "ecdsa"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewSSHD(t, c)
			address, key := s.Address(), s.HostKey("ed25519")
			output(t, s, "true")
			cmd := linger(t, s, "cat")
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			lost(t, cmd)
			output(t, s, "true")
			s.Stop()
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			output(t, s, "true")
			if s.Address() != address || s.HostKey("ed25519") != key {
				t.Errorf("it is at %s with %s, and was at %s with %s", s.Address(), s.HostKey("ed25519"),
					address, key)
			}
			if err := s.NewHostKey(); err != nil {
				t.Fatal(err)
			}
			if s.Address() != address || s.HostKey("ed25519") == key ||
				!strings.HasPrefix(s.HostKey("ed25519"), "ssh-ed25519 ") {
				t.Errorf("it is at %s with %s", s.Address(), s.HostKey("ed25519"))
			}
			if _, errs, code := over(t, s, "true"); code != 255 || !strings.Contains(errs,
				"REMOTE HOST IDENTIFICATION HAS CHANGED") {
				t.Errorf("afterwards it ends with %d: %s", code, errs)
			}
			known := "[127.0.0.1]:" + strings.TrimPrefix(address, "127.0.0.1:") + " " +
				s.HostKey("ed25519") + "\n"
			if err := os.WriteFile(s.KnownHosts(), []byte(known), 0o600); err != nil {
				t.Fatal(err)
			}
			output(t, s, "true")
			if c.Account != nil {
				until(t, "nothing of the user is left", func() bool { return len(s.Processes()) == 0 })
			}
		})
	}
}

// TestSSHDSftp copies a file.
func TestSSHDSftp(t *testing.T) {
	sftp, err := exec.LookPath("sftp")
	if err != nil {
		t.Skip("needs sftp")
	}
	const noise = "echo good morning\n"
	for name, tt := range map[string]struct {
		config SSHDConfig
		works  bool
	}{
		"internal": {
			SSHDConfig{Account: &Account{Profile: map[string]string{".bashrc": noise}}}, true,
		},
		"none":          {SSHDConfig{Sftp: SftpNone}, false},
		"dropbear":      {SSHDConfig{Account: &Account{}, Dropbear: true}, true},
		"dropbear none": {SSHDConfig{Account: &Account{}, Dropbear: true, Sftp: SftpNone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewSSHD(t, tt.config)
			from, to := filepath.Join(s.dir, "from"), filepath.Join(t.TempDir(), "to")
			if err := os.WriteFile(from, []byte("content"), 0o644); err != nil {
				t.Fatal(err)
			}
			host, port, _ := strings.Cut(s.Address(), ":")
			out, err := exec.CommandContext(t.Context(), sftp, "-F", filepath.Join(s.Client(t), "config"),
				"-P", port, s.User()+"@"+host+":"+from, to).CombinedOutput()
			got, _ := os.ReadFile(to)
			if (err == nil) != tt.works || (string(got) == "content") != tt.works {
				t.Errorf("%v, %q: %s", err, got, out)
			}
			if out := output(t, s, "echo it works"); !strings.HasSuffix(out, "it works\n") {
				t.Errorf("a command prints %q", out)
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
		"option":           {SSHDConfig{Options: []string{"Nonsense yes"}}, "Nonsense"},
		"kind of host key": {SSHDConfig{HostKeys: []string{"dsa"}}, "dsa"},
		"name":             {SSHDConfig{Account: &Account{Name: "a:b"}}, `"a:b"`},
		"dropbear":         {SSHDConfig{Dropbear: true}, "dropbear"},
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
		defer other.Close() //nolint:errcheck // nobody came
		if err := s.Restart(); err == nil || !strings.Contains(err.Error(), taken) {
			t.Errorf("got %v", err)
		}
	})
}
