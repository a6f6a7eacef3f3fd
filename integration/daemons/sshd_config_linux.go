package daemons

import (
	"bytes"
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
		"MaxStartups 100", "LogLevel VERBOSE", "HostKey "+s.file("host_key"),
	)
	if len(s.config.Vars) > 0 { // only the first such line has an effect
		lines = append(lines, `SetEnv "`+strings.Join(s.config.Vars, `" "`)+`"`)
	}
	if s.config.Sftp == SftpInternal {
		lines = append(lines, "Subsystem sftp internal-sftp")
	}
	// Newer servers delay a client that has failed before; older ones reject the option.
	const penalties = "PerSourcePenalties no"
	if err := s.save(append(lines, penalties)); err != nil {
		return err
	}
	out, err := exec.Command(s.program, "-t", "-f", s.file("sshd_config")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("PerSourcePenalties")) {
		return nil // the server reports errors in other lines
	}
	return s.save(lines)
}

func (s *SSHD) save(lines []string) error {
	return os.WriteFile(s.file("sshd_config"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// authorize admits one key, or none.
func (s *SSHD) authorize(public []byte) error {
	name := s.file("authorized_keys")
	if s.config.Dropbear {
		name = dropbearKeys(s.home)
	}
	return os.WriteFile(name, public, 0o644) // the server reads it with the user's rights
}

// Revoke makes the server refuse all keys. Existing connections stay.
func (s *SSHD) Revoke() error { return s.authorize(nil) }
