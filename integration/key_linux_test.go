package integration_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// TestKeyIsHidden lets commands of a run search for the model's key in their variables, in the
// /proc files of the program, and, as an ordinary user, in its memory.
func TestKeyIsHidden(t *testing.T) {
	users := map[string]int{"as_is": os.Getuid()}
	if os.Getuid() == 0 {
		users["nobody"] = nobody
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			look := "env; tr '\\0' '\\n' < /proc/$PPID/environ; head -c 1 /proc/$PPID/mem 2>&1; true"
			srv := llmtest.NewServer(t, llmtest.Sequence(llmtest.Use(shell(look)), llmtest.Text("done")))
			dir, err := os.MkdirTemp("", "sandboxagent-key-") //nolint:usetesting // others must reach it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chown(dir, uid, -1); err != nil {
				t.Fatal(err)
			}
			bin := dir + "/sandboxagent"
			if out, err := exec.CommandContext(t.Context(), "install", "-m", "755", command(t),
				bin).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := exec.CommandContext(t.Context(), bin, "run", "--yes", "--inherit-vars=all", "--model",
				"openai/m", "--base-url", srv.URL(), "look")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+srv.Key(), "SANDBOXAGENT_STATE_DIR="+dir,
				"HOME="+dir, "ANOTHER=visible")
			user := &syscall.Credential{Uid: uint32(uid), Gid: uint32(os.Getgid())} //nolint:gosec // fits
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			requests := srv.Requests()
			shown := requests[1].Messages[len(requests[1].Messages)-1].Parts[0].ToolResult.Text()
			if strings.Contains(shown, srv.Key()) || !strings.Contains(shown, "ANOTHER=visible") {
				t.Errorf("the command saw\n%s", shown)
			}
			if uid != 0 && !strings.Contains(strings.ToLower(shown), "permission denied") {
				t.Errorf("an ordinary user's command may read the program's memory:\n%s", shown)
			}
		})
	}
}
