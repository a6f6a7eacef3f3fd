package integration_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

var built atomic.Bool

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandboxagent-test-")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "sandboxagent")
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	// as make build does
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", name,
		module+"/cmd/sandboxagent")
	// a static program is the helper, too, in a container
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		os.Stderr.Write(out) //nolint:errcheck // the caller reports err
	}
	return name, err
})

// killable is the program as the test binary of its package: it kills itself at a point of its
// journal, which SANDBOXAGENT_TEST_KILL has as "before N" or "after N".
var killable = sync.OnceValues(func() (string, error) {
	program, err := binary()
	if err != nil {
		return "", err
	}
	name := filepath.Join(filepath.Dir(program), "killable")
	build := exec.Command("go", "test", "-c", "-o", name, module+"/cmd/sandboxagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		os.Stderr.Write(out) //nolint:errcheck // the caller reports err
	}
	return name, err
})

// killAt makes an execution of the program that kills itself at a point of its journal.
func killAt(t testing.TB, cmd *exec.Cmd, point string) {
	t.Helper()
	name, err := killable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = name
	cmd.Env = append(cmd.Env, "SANDBOXAGENT_TEST_BE=sandboxagent-killed",
		"SANDBOXAGENT_TEST_KILL="+point)
}

// removeBinary removes the program that command has built.
func removeBinary() {
	if built.Load() {
		if name, err := binary(); err == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
	}
}

// command builds the program once and returns its path.
func command(t testing.TB) string {
	t.Helper()
	built.Store(true)
	name, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// ran is the result of a run of the program.
type ran struct {
	code           int
	stdout, stderr string
}

// runCommand runs the program in dir with additional variables.
func runCommand(t *testing.T, dir string, vars []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command(t), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append([]string{"SANDBOXAGENT_STATE_DIR=" + t.TempDir()},
		vars...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// shop makes the repository of testdata/shop.txtar with several commits and ignored files.
func shop(t *testing.T) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "shop.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 30 {
		t.Fatalf("the repository has only %d files", len(archive.Files))
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	for i, f := range archive.Files {
		writeTree(t, dir, map[string]string{f.Name: string(f.Data)})
		if i%8 == 7 || i == len(archive.Files)-1 {
			git(t, dir, "add", ".")
			git(t, dir, "commit", "-q", "-m", "add "+f.Name)
		}
	}
	writeTree(t, dir, map[string]string{"debug.log": "ignored\n", "bin/old": "ignored\n"})
	return dir
}

// shopBrain is a model that repairs the shop: it lists files, runs the failing test, finds the
// cause in another package, patches it, and runs the tests again.
func shopBrain(t *testing.T) llmtest.Brain {
	t.Helper()
	see := func(r *llmtest.Request, parts ...string) {
		body := r.Messages[len(r.Messages)-1]
		var text strings.Builder
		for _, p := range body.Parts {
			if p.ToolResult != nil {
				text.WriteString(p.ToolResult.Text())
			}
		}
		for _, part := range parts {
			if !strings.Contains(text.String(), part) {
				t.Errorf("request %d: the model was not shown %q but %s", r.Number, part, text.String())
			}
		}
	}
	const patch = `*** Begin Patch
*** Update File: discount/bulk.go
@@ func (b Bulk) Apply(quantity int, amount money.Amount) money.Amount {
-	if quantity > b.Min {
+	if quantity >= b.Min {
 		return amount - amount.Percent(b.Percent)
 	}
*** Update File: discount/bulk_test.go
@@ func TestBulk(t *testing.T) {
 	if got := b.Apply(11, 11000); got != 10450 {
 		t.Errorf("eleven pieces cost %d", got)
 	}
+	if got := b.Apply(10, 10000); got != 9500 {
+		t.Errorf("ten pieces cost %d", got)
+	}
 }
*** Add File: docs/changes.md
+# Changes
+
+- The bulk discount holds from the tenth piece on, as the rules say.
*** End Patch
`
	test := use("shell", map[string]any{
		"command": "GOTOOLCHAIN=local go test ./...", "timeout_ms": 300_000,
	})
	return func(r *llmtest.Request) llmtest.Reply {
		switch r.Number {
		case 0:
			if !strings.Contains(r.System, "Money is counted in cents") || !strings.Contains(r.System,
				"Git branch: main") {
				t.Error("the system prompt does not describe the repository")
			}
			return llmtest.Use(use("glob", map[string]any{"pattern": "**/*.go"}), use("list_dir",
				map[string]any{"path": "."}))
		case 1:
			see(r, "discount/bulk.go", "cart/cart_test.go", "go.mod")
			return llmtest.Use(test)
		case 2:
			see(r, "TestBulkDiscountFromTenPieces", "10 pens cost 1000, want 950", "exit code 1")
			return llmtest.Use(use("grep", map[string]any{"pattern": `\.Min\b`}), use("read_file",
				map[string]any{"file_path": "docs/rules.md"}))
		case 3:
			see(r, "discount/bulk.go:13:	if quantity > b.Min {", "From ten pieces")
			return llmtest.Use(use("read_file", map[string]any{"file_path": "discount/bulk.go"}),
				shell("cat discount/bulk_test.go"))
		case 4:
			see(r, "13 | 	if quantity > b.Min {")
			return llmtest.Use(use("apply_patch", map[string]any{"patch": patch}))
		case 5:
			see(r, "M discount/bulk.go", "M discount/bulk_test.go", "A docs/changes.md")
			return llmtest.Use(test, shell("GOTOOLCHAIN=local go build -o bin/shop ./cmd/shop && "+
				"./bin/shop > run.log && cat run.log"))
		case 6:
			see(r, "ok  	example.com/shop/cart", "total       21.18", "exit code 0")
			return llmtest.Text("The bulk discount now holds from the tenth piece on.")
		}
		return llmtest.Reply{Violation: "one request too many"}
	}
}

func TestRealRepository(t *testing.T) {
	proveInPlace(t, func(string) []string { return []string{"--env=local"} })
}

// proveInPlace has the program work on a repository in place; flags select its directory.
func proveInPlace(t *testing.T, flags func(dir string) []string) {
	t.Helper()
	dir := shop(t)
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goCache := strings.TrimSpace(string(cache)) // else each run compiles the standard library
	res, patch := repairShop(t, dir, func(vars []string, args ...string) ran {
		args = slices.Concat(args, flags(dir),
			[]string{"--yes", "--allow-write", goCache, "--var", "GOCACHE=" + goCache})
		return runCommand(t, dir, vars, args...)
	})
	if before, err := os.ReadFile(res.Changes[0].Backup); err != nil ||
		!strings.Contains(string(before), "quantity > b.Min") {
		t.Errorf("the backup of %+v is %q, %v", res.Changes[0], before, err)
	}
	for _, ignored := range []string{"run.log", "bin/shop", "debug.log"} {
		if strings.Contains(patch, ignored) {
			t.Errorf("the patch holds %s, which git ignores", ignored)
		}
	}
}

// repairShop has the model of shopBrain repair the shop in dir, and checks the result and the
// patch.
func repairShop(
	t *testing.T, dir string, run func(vars []string, args ...string) ran,
) (res event.Result, patch string) {
	t.Helper()
	clean, file := filepath.Join(t.TempDir(), "clean"), filepath.Join(t.TempDir(), "out.patch")
	git(t, dir, "clone", "-q", dir, clean)
	srv := llmtest.NewServer(t, shopBrain(t))
	got := run([]string{"OPENAI_API_KEY=" + srv.Key()}, "run", "--model=openai/gpt-5.2",
		"--base-url="+srv.URL(), "--patch="+file, "--output=stream-json",
		"--verify=GOTOOLCHAIN=local go vet ./... && GOTOOLCHAIN=local go test ./...",
		"Make the failing test pass.")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	if _, res = records(t, got.stdout); res.Status != "completed" || len(res.Changes) != 3 ||
		!strings.Contains(res.Text, "tenth piece") {
		t.Fatalf("the result is %+v", res)
	}
	git(t, clean, "apply", "--index", file)
	checkShop(t, clean)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// checkShop checks that three files of the shop in dir have changed and its tests pass.
func checkShop(t *testing.T, dir string) {
	t.Helper()
	if status := git(t, dir, "status", "--porcelain"); strings.Count(status, "\n") != 3 {
		t.Errorf("in %s has changed\n%s", dir, status)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the tests fail in %s: %v\n%s", dir, err, out)
	}
}
