package integration_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/images"
)

// exampleOutputs has the arguments and the output of each example that ends by itself.
var exampleOutputs = map[string]struct {
	args []string
	want string
}{
	"hello": {nil, "completed 1 file: I have written hello.txt.\n"},
	"batch": {
		[]string{"-parallel=2", "one", "two", "three"},
		"1. one: completed: I have written the answer.\n" +
			"2. two: completed: I have written the answer.\n" +
			"3. three: completed: I have written the answer.\n",
	},
	"evaluate": {nil, "upper: completed, 340 bytes of patch, solved: true\n" +
		"repeat: completed, 0 bytes of patch, solved: false\n1 of 2 solved\n"},
	"own-tool":      {nil, "Parse fails for MCMXC.\n"},
	"own-client":    {nil, "HEAR ME\n"},
	"own-decorator": {nil, "There are 2 lines.\ncommands: true, reads: true, writes: 1\n"},
	"own-backend":   {[]string{"sh", "-c", "touch file && ls"}, "file\n"},
}

// TestExamples builds and runs the programs in examples/, which need neither a key nor a network;
// one needs Docker.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, module+"/examples/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // static, so that each is its own helper
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs, err := filepath.Glob("../examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range programs {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(bin, name)
			if runtime.GOOS == "windows" {
				program += ".exe"
			}
			if name == "server" {
				proveServer(t, program)
				return
			}
			example, ok := exampleOutputs[name]
			if !ok {
				t.Fatal("it has no expected output here")
			}
			if _, err := exec.LookPath("bwrap"); err != nil && name == "own-backend" {
				t.Skip("needs bubblewrap")
			}
			cmd := exec.CommandContext(t.Context(), program, example.args...)
			cmd.Dir = t.TempDir()
			if name == "evaluate" {
				d := sharedDocker(t)
				d.need(t, images.DefaultReference)
				cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host)
			}
			if got := finish(t, cmd); got.code != 0 || got.stdout != example.want {
				t.Errorf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
			}
		})
	}
}

// proveServer sends tasks to the example that serves them over HTTP.
func proveServer(t *testing.T, program string) {
	cmd := exec.CommandContext(t.Context(), program, "-address=127.0.0.1:0")
	temp := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	for range 2 { // each sees its own file only
		resp, err := http.Post(url, "text/plain", strings.NewReader("Which files are here?"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v\n%s", resp.Status, err, data)
		}
		var kinds []string
		for line := range strings.Lines(string(data)) {
			var e struct{ Type string }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			kinds = append(kinds, e.Type)
		}
		for _, kind := range []string{"user_input", "tool_call_end", "assistant_text_end"} {
			if !slices.Contains(kinds, kind) {
				t.Errorf("no event %s in\n%s", kind, data)
			}
		}
		if !strings.Contains(string(data), `There is one file.`) {
			t.Errorf("the answer is missing in\n%s", data)
		}
	}
	tasks, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil || len(tasks) > 0 {
		t.Errorf("these directories are left: %q, %v", tasks, err)
	}
}
