package sandboxd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
)

// TestNoStdio has all clients connect to the socket: the first one sets the token, and the helper
// ends when it had none for the TTL. Its stdin has ended before.
func TestNoStdio(t *testing.T) {
	socket := socketPath(t)
	first := launch(t, helperArgv(t, "dial", "--socket", socket, "--wait", "20s"), nil)
	helper := launch(t, helperArgv(t, "serve", "--socket", socket, "--ttl", "1s", "--no-stdio"), nil)
	if err := helper.in.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := client.Config{Start: start(t, t.TempDir()), Token: token}
	e, err := open(t, first, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, e, sh("echo works")); got != "works\n" {
		t.Errorf("the command prints %q", got)
	}
	_, err = client.Open(t.Context(), client.Config{
		Dial:  func(context.Context) (io.ReadWriteCloser, error) { return net.Dial("unix", socket) },
		Token: strings.Repeat("x", len(token)), Start: start(t, t.TempDir()),
	})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("with another token: %v", err)
	}
	e.Leave()
	select {
	case <-helper.exited:
	case <-time.After(3 * time.Minute):
		t.Fatal("the helper lives on")
	}
	if code := helper.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, helper.stderrText)
	}
}

// TestInstall copies the program and makes directories.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	file, own := filepath.Join(dir, "sandboxd"), filepath.Join(dir, "own")
	argv := helperArgv(t, "install", file, own)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o111 {
		t.Errorf("%v, %v", info, err)
	}
	want, err := os.ReadFile(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); os.Geteuid() == 0 && (err != nil || !bytes.Equal(got, want)) {
		t.Errorf("the file differs: %v", err)
	}
	if info, err := os.Stat(own); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	if err := exec.Command(argv[0], argv[1:]...).Run(); err == nil {
		t.Error("it overwrites the file")
	}
}
