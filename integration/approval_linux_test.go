package integration_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestApproval has runs that ask on a terminal about commands for an environment: one that the user
// allows, a hostile one, which is shown as it is, and one about which nobody answers.
func TestApproval(t *testing.T) {
	t.Parallel()
	setUps := maps.Clone(remoteSetUps)
	setUps["local"] = func(*testing.T) (flags, vars []string) { return nil, nil }
	for name, setUp := range setUps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags, vars := setUp(t)
			const hostile = `rm -rf x; echo bad >bad\r\e[2K\e[1A\e[2Kls`
			screen, patch := asked(t, vars, flags, `turns:
  - calls: [{tool: shell, args: {command: echo good >good}}]
  - calls: [{tool: shell, args: {command: "`+hostile+`"}}]
  - expect: {result: {contains: The user refused this call}}
    text: done
`, "o\n", "d\n")
			if shown := strings.ReplaceAll(hostile, `\e`, `\x1b`); !strings.Contains(screen, shown) {
				t.Errorf("the screen lacks %s: %q", shown, screen)
			}
			if !strings.Contains(patch, "+++ b/good\n") || strings.Contains(patch, "bad") {
				t.Errorf("the patch is %s", patch)
			}
			screen, patch = asked(t, vars, append(flags, "--approve-timeout=50ms"), `turns:
  - calls: [{tool: shell, args: {command: echo late >late}}]
  - expect: {result: {contains: nobody answered within 50ms}}
    text: done
`)
			if !strings.Contains(screen, "Allow it? ") || strings.Contains(patch, "late") {
				t.Errorf("the screen has %q, and the patch is %s", screen, patch)
			}
		})
	}
}

// asked runs the program with a model on a terminal, types an answer to each of the first
// questions, and returns what is on the screen, and the patch.
func asked(
	t *testing.T, vars, flags []string, model string, answers ...string,
) (text, patch string) {
	t.Helper()
	dir, files := t.TempDir(), t.TempDir()
	git(t, dir, "init", "-q")
	writeTree(t, files, map[string]string{"model.yaml": model})
	out := filepath.Join(files, "out.patch")
	cmd := exec.CommandContext(t.Context(), command(t), slices.Concat([]string{
		"run", "--ask=shell", "--allow=write", "--workdir=" + dir, "--patch=" + out,
		"--model=script:" + filepath.Join(files, "model.yaml"),
	}, flags, []string{"a task"})...)
	cmd.Env = slices.Concat(os.Environ(), vars, []string{
		"CI=", "TERM=xterm", "SANDBOXAGENT_STATE_DIR=" + t.TempDir(),
	})
	screen, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close() //nolint:errcheck // the program has ended
	seen, done := readScreen(screen)
	for i, keys := range answers {
		await(t, "the question", func() bool {
			return strings.Count(seen.String(), "a[b]ort the run: ") > i
		})
		if _, err := screen.Write([]byte(keys)); err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	<-done
	if err != nil {
		t.Fatalf("%v: %q", err, seen.String())
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return seen.String(), string(data)
}
