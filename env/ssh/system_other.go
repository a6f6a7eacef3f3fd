//go:build !unix

package ssh

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
)

// tooOpen always returns false: on this system the mode of a file does not decide on access.
func tooOpen(string) (fs.FileMode, bool) { return 0, false }

// shellCommand returns an error: killTree could not end the descendants of the command.
func shellCommand(string) (*exec.Cmd, error) {
	return nil, errors.New("not supported on this system; ProxyJump is")
}

func isolate(cmd *exec.Cmd) *exec.Cmd { return cmd }

func killTree(p *os.Process) error { return p.Kill() }
