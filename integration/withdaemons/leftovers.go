package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// endTime bounds how long processes of the command may take to end after it, and the kernel to
// remove their mounts.
const endTime = 30 * time.Second

// makeTemp makes a directory for temporary files as /tmp is: open to all users, since tests start
// commands as other users. Its name is short, for the names of sockets below it are limited.
func makeTemp() (string, error) {
	dir, err := os.MkdirTemp("", "sa-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky)
}

// removeTemp removes the directory of the command's temporary files. It returns an error that lists
// the files, processes and mounts that the command left in it. The directory is the command's own,
// so that other processes of the machine do not matter.
func removeTemp(dir string) error {
	left := uses(dir)
	for deadline := time.Now().Add(endTime); len(left) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		left = uses(dir)
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		left = append(left, "file "+filepath.Join(dir, f.Name()))
	}
	err = errors.Join(err, os.RemoveAll(dir))
	if len(left) > 0 {
		err = errors.Join(fmt.Errorf("the command left:\n\t%s", strings.Join(left, "\n\t")), err)
	}
	return err
}

// uses lists the processes and mounts of the machine that use dir: a process has it in its command
// line or environment variables, or runs or works in it. Where no /proc exists, it lists none.
func uses(dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, process := range processes {
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil || len(line) == 0 {
			continue // it has ended, or is a zombie or a thread of the kernel
		}
		variables, _ := os.ReadFile(filepath.Join(process, "environ")) // other users' are unreadable
		exe, _ := os.Readlink(filepath.Join(process, "exe"))
		cwd, _ := os.Readlink(filepath.Join(process, "cwd"))
		for _, text := range []string{string(line), string(variables), exe, cwd} {
			if strings.Contains(text, dir) {
				found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(process),
					bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
				break
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found
}
