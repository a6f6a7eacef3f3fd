//go:build unix

package docker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"
)

// TestSSHWriteError writes to a program ssh that exits until a write fails: the error has the
// program's stderr.
func TestSSHWriteError(t *testing.T) {
	dir := t.TempDir()
	script := []byte("#!/bin/sh\necho 'the reason' >&2\nexit 255\n")
	if err := os.WriteFile(filepath.Join(dir, "ssh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	opts, err := sshOptions("ssh://host")
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.NewClientWithOpts(opts...)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := api.Dialer()(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = conn.Read(make([]byte, 1)) }()
	for err == nil {
		_, err = conn.Write([]byte("x"))
	}
	if !strings.Contains(err.Error(), "the reason") {
		t.Errorf("a write returns %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
