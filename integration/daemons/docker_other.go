//go:build !linux

package daemons

import (
	"context"
	"errors"
)

var errSystem = errors.New("a private dockerd runs on Linux only")

// Docker is a private dockerd.
type Docker struct{}

// Available returns why this machine cannot start a daemon; nil means that it can.
func Available() error { return errSystem }

// StartDocker starts a daemon, which works on Linux only.
func StartDocker(context.Context, DockerConfig) (*Docker, error) { return nil, errSystem }

// Host is the address of the daemon's socket.
func (d *Docker) Host() string { return "" }

// TLSHost is the address of the daemon's TCP port.
func (d *Docker) TLSHost() string { return "" }

// CertDir is the directory of the certificates for TLSHost.
func (d *Docker) CertDir() string { return "" }

// Pid is the process of the daemon.
func (d *Docker) Pid() int { return 0 }

// Kill ends the daemon by SIGKILL.
func (d *Docker) Kill() error { return errSystem }

// Start starts the daemon again.
func (d *Docker) Start(context.Context) error { return errSystem }

// Restart ends the daemon by SIGTERM and starts it again.
func (d *Docker) Restart(context.Context) error { return errSystem }

// Stop ends the daemon and removes its files.
func (d *Docker) Stop() error { return errSystem }

// Load puts test images into the daemon.
func (d *Docker) Load(context.Context, ...string) error { return errSystem }

func (d *Docker) logTail() string { return "" }
