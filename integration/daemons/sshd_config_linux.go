package daemons

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// writeConfig writes the configuration of OpenSSH's server.
func (s *SSHD) writeConfig() error {
	lines := append(slices.Clone(s.config.Options),
		"ListenAddress "+s.Address(), "AuthorizedKeysFile "+s.file("authorized_keys"), "PidFile none",
		"StrictModes no", "UsePAM no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes",
		"MaxStartups 100", "LogLevel VERBOSE",
	)
	for _, kind := range s.config.HostKeys {
		lines = append(lines, "HostKey "+s.hostKeyFile(kind))
	}
	if len(s.config.Vars) > 0 { // only the first such line counts
		lines = append(lines, `SetEnv "`+strings.Join(s.config.Vars, `" "`)+`"`)
	}
	switch s.config.Sftp {
	case SftpInternal:
		lines = append(lines, "Subsystem sftp internal-sftp")
	case SftpServer:
		program, err := sftpServer()
		if err != nil {
			return err
		}
		lines = append(lines, "Subsystem sftp "+program)
	case SftpNone:
	}
	// Newer servers make a client wait that has failed before, and older ones do not know the setting.
	const penalties = "PerSourcePenalties no"
	if err := s.save(append(lines, penalties)); err != nil {
		return err
	}
	said, err := exec.Command(s.program, "-t", "-f", s.file("sshd_config")).CombinedOutput()
	if err == nil || !bytes.Contains(said, []byte("PerSourcePenalties")) {
		return nil // the server says what is wrong with other lines
	}
	return s.save(lines)
}

func (s *SSHD) save(lines []string) error {
	return os.WriteFile(s.file("sshd_config"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// sftpServer is the program that serves files.
func sftpServer() (string, error) {
	for _, name := range []string{
		"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server",
	} {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: it needs the program sftp-server", errNoSSHD)
}

// authorize lets a key in, or nobody.
func (s *SSHD) authorize(public []byte) error {
	name := s.file("authorized_keys")
	if s.config.Dropbear {
		name = dropbearKeys(s.home)
	}
	return os.WriteFile(name, public, 0o644) // the server reads it with the user's rights
}

// Revoke makes the server let nobody in any more. Connections that there are stay.
func (s *SSHD) Revoke() error { return s.authorize(nil) }
