package daemons

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
)

// dropbearSftp is the program that dropbear starts as its SFTP server.
const dropbearSftp = "/usr/lib/sftp-server"

// dropbearKeys is the only file from which dropbear reads the keys of a user.
func dropbearKeys(home string) string { return filepath.Join(home, ".ssh", "authorized_keys") }

// makeDropbearKey makes a key of the form that dropbear reads and returns the public part.
func makeDropbearKey(ctx context.Context, name string) (string, error) {
	if err := run(exec.CommandContext(ctx, "dropbearkey", "-t", "ed25519", "-f", name)); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "dropbearkey", "-y", "-f", name).Output()
	if err != nil {
		return "", err
	}
	return publicKey(string(out))
}

// dropbear returns the command that starts dropbear, and the text that it logs when it listens.
func (s *SSHD) dropbear() (argv []string, listening string) {
	argv = append([]string{
		s.program, "-F", "-E", "-s", "-p", s.Address(), "-P", s.file("pid"), "-r", s.file("host_key"),
	}, s.config.Options...)
	if len(s.config.Vars) > 0 { // commands inherit the server's variables
		argv = slices.Concat([]string{"/usr/bin/env", "-i"}, s.config.Vars, argv, []string{"-e"})
	}
	return argv, "Not backgrounding"
}
