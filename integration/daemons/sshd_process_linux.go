package daemons

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// command returns the command that starts the server, and the text that it logs when it listens.
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

// Sessions lists the processes of the connections, one for each.
func (s *SSHD) Sessions() []int {
	cmd, _ := s.process()
	return s.servers(children(cmd.Process.Pid))
}

// Cut ends all connections. The server and the commands continue.
func (s *SSHD) Cut() {
	for _, pid := range s.Sessions() {
		// the unprivileged part, which has the connection
		for _, below := range s.servers(children(pid)) {
			_ = unix.Kill(below, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// Processes lists the processes of the user without the server's. Of an ordinary account they are
// those of one test.
func (s *SSHD) Processes() []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, name := range names {
		// The directory of a process that is not dumpable belongs to root.
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

// servers returns the processes that run the server's programs.
func (s *SSHD) servers(pids []int) []int {
	var found []int
	for _, pid := range pids {
		if s.serves(program(pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// serves reports whether a program is the server's: some versions have more programs, whose names
// start with that of the server.
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
