//go:build !linux

package daemons

import (
	"context"
	"fmt"
	"testing"
)

// SSHD is an ssh server of a test.
type SSHD struct{}

func startSSHD(context.Context, SSHDConfig) (*SSHD, error) {
	return nil, fmt.Errorf("%w: it needs Linux", errNoSSHD)
}

func (s *SSHD) remove(context.Context) error { return nil }

// Address is the address on which the server listens.
func (s *SSHD) Address() string { return "" }

// User is the name of the user that the server admits.
func (s *SSHD) User() string { return "" }

// Home is the user's home.
func (s *SSHD) Home() string { return "" }

// Host is the address of the server, as DOCKER_HOST has it.
func (s *SSHD) Host() string { return "" }

// MakeDir makes an empty directory of the account.
func (s *SSHD) MakeDir(testing.TB) string { return "" }

// Key is the file of the private key that the server admits.
func (s *SSHD) Key() string { return "" }

// KnownHosts is the file with the server's first keys.
func (s *SSHD) KnownHosts() string { return "" }

// HostKey is the server's key.
func (s *SSHD) HostKey() string { return "" }

// Log is the log of the server.
func (s *SSHD) Log() string { return "" }

// Client returns a directory with a configured program ssh.
func (s *SSHD) Client(testing.TB, ...string) string { return "" }

// Revoke makes the server refuse all keys.
func (s *SSHD) Revoke() error { return errNoSSHD }

// Sessions lists the processes of the connections.
func (s *SSHD) Sessions() []int { return nil }

// Processes lists the processes of the user.
func (s *SSHD) Processes() []int { return nil }

// Cut ends all connections.
func (s *SSHD) Cut() {}

// Stop ends the server and all connections.
func (s *SSHD) Stop() {}

// Restart starts the server again.
func (s *SSHD) Restart() error { return errNoSSHD }

// NewHostKey gives the server another key.
func (s *SSHD) NewHostKey() error { return errNoSSHD }
