package k8s_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildProgram builds the program sandboxagent beside helperProgram, once.
var buildProgram = sync.OnceValues(func() (string, error) {
	name := filepath.Join(filepath.Dir(helperProgram), "sandboxagent")
	build := exec.Command("go", "build", "-trimpath", "-tags", "urfave_cli_no_docs",
		"-ldflags=-s -w", "-o", name, "../../cmd/sandboxagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return name, nil
})

// programIn returns an execution of the program in an empty directory, with the cluster of a
// kubeconfig file and small pods.
func programIn(t *testing.T, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	name, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "SANDBOXAGENT_ENV=k8s",
		"XDG_CONFIG_HOME="+t.TempDir(), "SANDBOXAGENT_STATE_DIR="+t.TempDir(),
		"SANDBOXAGENT_HELPER_BINARY="+helperProgram,
		"SANDBOXAGENT_CPUS=0.15", "SANDBOXAGENT_MEMORY=256MiB", "SANDBOXAGENT_DISK=512MiB",
		"SANDBOXAGENT_PULL=never", "SANDBOXAGENT_START_TIMEOUT=10m")
	return cmd
}

// wantCode checks the exit code of an ended program, and that stderr contains a text.
func wantCode(t *testing.T, cmd *exec.Cmd, err error, code int, stderr, text string) {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(stderr, text) {
		t.Errorf("%q has the exit code %d, want %d and %q: %s", cmd.Args[1:], got, code, text, stderr)
	}
}

// wantExit runs exec of the program with flags, and checks its exit code and that its errors
// contain a text.
func wantExit(t *testing.T, kubeconfig string, code int, text string, flags ...string) {
	t.Helper()
	cmd := programIn(t, kubeconfig, append(append([]string{"exec"}, flags...), "--", "true")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := runInTime(t, cmd)
	wantCode(t, cmd, err, code, stderr.String(), text)
}

// runInTime runs a command, which must end within the time of await.
func runInTime(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	return await(t, done, "the program goes on")
}

// codeAwake is the exit code of the command of sleeping.
const codeAwake = 7

// sleeping starts a command of the program that prints a line and then waits for another one. The
// result waits for the end, and checks the exit code and the errors. With codeAwake it first sends
// the line.
func sleeping(
	t *testing.T, kubeconfig string, flags ...string,
) (end func(code int, text string)) {
	t.Helper()
	cmd := programIn(t, kubeconfig, append(append([]string{"exec", "-i"}, flags...), "--", "sh", "-c",
		fmt.Sprintf("echo now; read line; exit %d", codeAwake))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, done := make(chan string, 1), make(chan error, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadString('\n')
		first <- line
		_, _ = io.Copy(io.Discard, lines)
		done <- cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() { // if the test fails before the end
		_ = cmd.Process.Signal(os.Interrupt)
		_, _ = stdin.Close(), await(t, done, "the program goes on")
	})
	if line := await(t, first, "the command does not start"); line != "now\n" {
		t.Fatalf("the command prints %q: %s", line, stderr.String())
	}
	return func(code int, text string) {
		t.Helper()
		if code == codeAwake {
			_, _ = io.WriteString(stdin, "go on\n") // the exit code reports a failure
		}
		err := await(t, done, "the program goes on")
		wantCode(t, cmd, err, code, stderr.String(), text)
	}
}
