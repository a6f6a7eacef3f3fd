package daemons

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// command returns the command that starts the server, and what the server says when it listens.
func (s *SSHD) command() (argv []string, listening string) {
	argv, listening = []string{
		s.program, "-D", "-e", "-f", s.file("sshd_config"),
	}, "Server listening on"
	if s.config.Dropbear {
		argv, listening = s.dropbear()
	}
	if s.config.Account != nil {
		argv = s.within(argv)
	}
	return argv, listening
}

// Sessions are the processes of the connections that there are, one for each.
func (s *SSHD) Sessions() []int {
	cmd, _ := s.process()
	return s.own(children(cmd.Process.Pid))
}

// Cut ends all connections that there are. The server goes on, and so do the commands, which are
// not told.
func (s *SSHD) Cut() {
	for _, pid := range s.Sessions() {
		// the part without rights, which is the one that has the connection
		for _, below := range s.own(children(pid)) {
			_ = unix.Kill(below, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// Processes are those of the user that are not the server's. They are the processes of the test if
// the user is an ordinary account: no other test has it.
func (s *SSHD) Processes() []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, name := range names {
		// The owner of the folder would be another one for a process that nobody may trace.
		status, _ := os.ReadFile(name + "/status")
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", s.uid)) {
			continue
		}
		if of := program(pid); of != "" && !s.serves(of) {
			found = append(found, pid)
		}
	}
	return found
}

// own returns those processes that run the server's programs.
func (s *SSHD) own(pids []int) []int {
	var found []int
	for _, pid := range pids {
		if s.serves(program(pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// serves tells whether a program is the server's: some versions have others for connections, whose
// names begin like its own.
func (s *SSHD) serves(program string) bool {
	return strings.HasPrefix(filepath.Base(program), filepath.Base(s.program))
}

// program returns the file that a process runs, or nothing if it has ended.
func program(pid int) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return name
}

// children returns the processes that a process has started.
func children(pid int) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []int
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}
