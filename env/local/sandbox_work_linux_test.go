package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestSandboxedWork does real work in each kind of sandbox, without a network.
func TestSandboxedWork(t *testing.T) {
	eachSandbox(t, func(t *testing.T, by sandbox.Mechanism) {
		t.Run("git", func(t *testing.T) { testGit(t, by) })
		if testing.Short() {
			t.Skip("left to make test-full: compiles programs, runs npm and pip")
		}
		t.Run("this repository", func(t *testing.T) { testThisRepository(t, by) })
		if by == sandbox.Bubblewrap { // which takes long, and the other has the same caches
			t.Run("a Go module", func(t *testing.T) { testGoModule(t, by) })
		}
		t.Run("C", func(t *testing.T) { testC(t, by) })
		t.Run("Rust", func(t *testing.T) { testRust(t, by) })
		t.Run("npm", func(t *testing.T) { testNPM(t, by) })
		t.Run("Python", func(t *testing.T) { testPython(t, by) })
	})
}

// worker runs programs in a sandbox without a network.
type worker struct {
	env  env.Environment
	vars []string
}

// newWorker returns a worker in a directory.
func newWorker(
	t *testing.T, by sandbox.Mechanism, dir string, s env.Sandbox, vars ...string,
) worker {
	t.Helper()
	e := sandboxed(t, by, local.Config{Dir: dir}, s)
	if got := e.Info().Strength(env.NoNetwork); got != env.Enforced {
		t.Fatalf("%s is %s", env.NoNetwork, got)
	}
	return worker{e, vars}
}

// run runs a program, which must succeed, and returns its standard output.
func (w worker) run(t *testing.T, argv ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	start := time.Now()
	r, err := w.env.Exec(t.Context(), env.Command{
		Argv: argv, Vars: w.vars, Stdout: &stdout, Stderr: &stderr, Timeout: 10 * time.Minute,
	})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%q: %+v, %v\n%s%s", argv, r, err, &stdout, &stderr)
	}
	t.Logf("%q took %s", argv, time.Since(start).Round(time.Millisecond))
	return stdout.String()
}

// outside runs a program without a sandbox, which must succeed, and returns its standard output.
func outside(t *testing.T, dir string, vars []string, argv ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), vars...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", argv, err, out, &stderr)
	}
	return string(out)
}

// need skips the test unless a program works without a sandbox. debian is its package.
func need(t *testing.T, debian string, argv ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err == nil {
		return
	}
	why := fmt.Sprintf("%q: %v, Debian's package is %s\n%s", argv, err, debian, out)
	if strings.Contains(os.Getenv("SANDBOXAGENT_REQUIRE"), "sandbox") {
		t.Fatal("SANDBOXAGENT_REQUIRE: " + why)
	}
	t.Skip(why)
}

// fill writes files, by their names below a directory.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wantFile checks the content of a file, outside of the sandbox.
func wantFile(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v, want %q", name, got, err, want)
	}
}

// testThisRepository builds and tests a clone of this repository, with the build cache of this
// user.
func testThisRepository(t *testing.T, by sandbox.Mechanism) {
	if err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("not in a checkout:", err)
	}
	root := strings.TrimSpace(outside(t, "", nil, "git", "rev-parse", "--show-toplevel"))
	cache := strings.TrimSpace(outside(t, "", nil, "go", "env", "GOCACHE"))
	dir := filepath.Join(t.TempDir(), "clone")
	outside(t, "", nil, "git", "clone", "-q", "--local", root, dir)
	head := strings.TrimSpace(outside(t, dir, nil, "git", "rev-parse", "HEAD"))
	const module = "github.com/sandboxagent/sandboxagent/"
	// CGO_ENABLED and -trimpath are those of make build, so that most of it is in the cache.
	w := newWorker(t, by, dir, env.Sandbox{Write: []string{cache}},
		"CGO_ENABLED=0", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off")

	all := "./..."
	if by == sandbox.Landlock { // the whole takes too long to do it twice
		all = "./cmd/..."
	}
	w.run(t, "go", "build", "-trimpath", all)
	out := w.run(t, "go", "test", "-trimpath", "-vet=off", "-count=1", "./env/internal/gitignore",
		"./runtime/profile")
	for _, pkg := range []string{"env/internal/gitignore", "runtime/profile"} {
		if !strings.Contains(out, "ok  \t"+module+pkg+"\t") {
			t.Errorf("the tests of %s give %q", pkg, out)
		}
	}
	w.run(t, "go", "build", "-trimpath", "-buildvcs=true", "-o", "bin/", "./cmd/sandboxd")
	got := outside(t, dir, nil, "go", "version", "-m", "bin/sandboxd")
	for _, want := range []string{
		module + "cmd/sandboxd\n", "vcs.revision=" + head + "\n", "vcs.modified=false\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the program does not contain %q: %s", want, got)
		}
	}
	if got := outside(t, dir, nil, "git", "status", "--porcelain"); got != "" {
		t.Errorf("git reports changes: %s", got)
	}

	// No other run has this package, so only the sandbox can have added it to the cache.
	fresh := fmt.Sprintf("package fresh\n\nconst Dir = %q\n", dir)
	fill(t, dir, map[string]string{"internal/fresh/fresh.go": fresh})
	export := strings.TrimSpace(w.run(t, "go", "list", "-trimpath", "-export", "-f", "{{.Export}}",
		"./internal/fresh"))
	if err := w.env.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(export); err != nil || !strings.HasPrefix(export, cache+"/") {
		t.Errorf("a package is in %q, not in %s: %v", export, cache, err)
	}
}

// testGoModule builds and tests a small module, with the build cache of the sandbox.
func testGoModule(t *testing.T, by sandbox.Mechanism) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"go.mod": "module example.com/work\n\ngo 1.26\n",
		"main.go": "package main\n\nimport \"example.com/work/sum\"\n\nfunc main() { " +
			"print(sum.Of(40, 2)) }\n",
		"sum/sum.go": "package sum\n\n// Of adds.\nfunc Of(a, b int) int { return a + b }\n",
		"sum/of_test.go": `package sum

import "testing"

func TestOf(t *testing.T) {
	if Of(1, 2) != 3 {
		t.Fail()
	}
}
`,
	})
	w := newWorker(t, by, dir, env.Sandbox{}, "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off")
	w.run(t, "go", "build", "-o", "program", ".")
	if got := w.run(t, "/bin/sh", "-c", "./program 2>&1"); got != "42" {
		t.Errorf("the program prints %q", got)
	}
	for _, want := range []string{"ok  \texample.com/work/sum\t", "\t(cached)"} {
		if out := w.run(t, "go", "test", "-vet=off", "./..."); !strings.Contains(out, want) {
			t.Errorf("the tests give %q, without %q", out, want)
		}
	}

	// The name of the directory is part of the package, so no other run has it.
	export := strings.TrimSpace(w.run(t, "go", "list", "-export", "-f", "{{.Export}}", "./sum"))
	cache := strings.TrimSpace(w.run(t, "go", "env", "GOCACHE"))
	w.run(t, "test", "-s", export)
	if err := w.env.Close(); err != nil {
		t.Fatal(err)
	}
	theirs := strings.TrimSpace(outside(t, "", nil, "go", "env", "GOCACHE"))
	if !strings.HasPrefix(export, cache+"/") || cache == theirs {
		t.Errorf("a package is in %q, the cache is %s, and outside %s", export, cache, theirs)
	}
	if _, err := os.Stat(export); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", export, err)
	}
}

// testGit commits to a repository that was created outside.
func testGit(t *testing.T, by sandbox.Mechanism) {
	dir := t.TempDir()
	vars := []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}
	fill(t, dir, map[string]string{"README": "one\n"})
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"config", "user.name", "A U Thor"},
		{"config", "user.email", "author@example.com"},
		{"add", "README"},
		{"commit", "-q", "-m", "first"},
	} {
		outside(t, dir, vars, append([]string{"git"}, args...)...)
	}

	w := newWorker(t, by, dir, env.Sandbox{}, vars...)
	w.run(t, "/bin/sh", "-c", "echo two >>README && mkdir src && echo new >src/new")
	if got := w.run(t, "git", "status", "--porcelain"); got != " M README\n?? src/\n" {
		t.Errorf("git reports %q", got)
	}
	w.run(t, "git", "add", "README", "src")
	w.run(t, "git", "commit", "-q", "-m", "second")
	const want = "A U Thor <author@example.com> second\nA U Thor <author@example.com> first\n"
	if got := w.run(t, "git", "log", "--format=%an <%ae> %s"); got != want {
		t.Errorf("in the sandbox the log is %q", got)
	}
	w.run(t, "git", "switch", "-q", "-c", "topic")
	w.run(t, "git", "gc", "-q")
	if err := w.env.Close(); err != nil {
		t.Fatal(err)
	}

	outside(t, dir, vars, "git", "fsck", "--full", "--strict")
	if got := outside(t, dir, vars, "git", "status", "--porcelain", "--branch"); got != "## topic\n" {
		t.Errorf("outside the state is %q", got)
	}
	if got := outside(t, dir, vars, "git", "log", "--format=%cn <%ce> %s", "main"); got != want {
		t.Errorf("outside the log is %q", got)
	}
	files := outside(t, dir, vars, "git", "show", "topic:README", "topic:src/new")
	if files != "one\ntwo\nnew\n" {
		t.Errorf("the files have %q", files)
	}
}

// testC compiles a program with make and a compiler.
func testC(t *testing.T, by sandbox.Mechanism) {
	need(t, "make gcc", "sh", "-c", "make --version && cc --version")
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"Makefile": "CFLAGS = -O2 -Wall\nall: program\n\t./program >out.txt\nprogram: main.o sum.o\n" +
			"\t$(CC) -o $@ $^\n",
		"main.c": "#include <stdio.h>\nint sum(int, int);\n" +
			"int main(void) { printf(\"%d\\n\", sum(40, 2)); return 0; }\n",
		"sum.c": "int sum(int a, int b) { return a + b; }\n",
	})
	newWorker(t, by, dir, env.Sandbox{}).run(t, "make")
	wantFile(t, filepath.Join(dir, "out.txt"), "42\n")
}

// testRust compiles a program with a toolchain that is usually in the home directory.
func testRust(t *testing.T, by sandbox.Mechanism) {
	if err := exec.CommandContext(t.Context(), "cargo", "--version").Run(); err != nil {
		t.Skip("cargo:", err)
	}
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"Cargo.toml":  "[package]\nname = \"work\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"src/main.rs": "fn main() { println!(\"hello, cargo\"); }\n",
	})
	if got := newWorker(t, by, dir, env.Sandbox{}).run(t, "cargo", "run", "-q", "--offline"); got !=
		"hello, cargo\n" {
		t.Errorf("the program prints %q", got)
	}
}

// testNPM installs a package from a directory, and runs scripts.
func testNPM(t *testing.T, by sandbox.Mechanism) {
	need(t, "npm", "npm", "--version")
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"package.json": `{"name": "work", "version": "1.0.0",
			"dependencies": {"greeting": "file:./greeting"},
			"scripts": {"build": "node build.js", "pretest": "npm run build", "test": "node test.js"}}`,
		"greeting/package.json": `{"name": "greeting", "version": "1.0.0", "main": "index.js"}`,
		"greeting/index.js":     "module.exports = who => `hello, ${who}`\n",
		"build.js": `const fs = require("node:fs")
			fs.mkdirSync("dist", { recursive: true })
			fs.writeFileSync("dist/out.txt", require("greeting")("npm") + "\n")`,
		"test.js": `const text = require("node:fs").readFileSync("dist/out.txt", "utf8")
			require("node:assert").equal(text, "hello, npm\n")
			console.log("the test has passed")`,
	})
	w := newWorker(t, by, dir, env.Sandbox{})
	w.run(t, "npm", "install", "--offline", "--no-audit", "--no-fund")
	w.run(t, "npm", "run", "build")
	wantFile(t, filepath.Join(dir, "dist/out.txt"), "hello, npm\n")
	if err := os.Remove(filepath.Join(dir, "dist/out.txt")); err != nil {
		t.Fatal(err)
	}
	if out := w.run(t, "npm", "test"); !strings.Contains(out, "the test has passed\n") {
		t.Errorf("the test gives %q", out)
	}
	wantFile(t, filepath.Join(dir, "dist/out.txt"), "hello, npm\n")
}

// pythonPackage has a build backend, since a virtual environment may have none.
var pythonPackage = map[string]string{
	"pkg/pyproject.toml": `[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
`,
	"pkg/greeting.py": `def main():
    with open("out.txt", "w") as f:
        f.write("hello, pip\n")
    print("written")
`,
	"pkg/backend.py": `import os, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, info = "greeting-1.0-py3-none-any.whl", "greeting-1.0.dist-info/"
    with open("greeting.py") as f:
        files = {"greeting.py": f.read()}
    files[info + "METADATA"] = "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"
    files[info + "WHEEL"] = ("Wheel-Version: 1.0\nGenerator: backend\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n")
    files[info + "entry_points.txt"] = "[console_scripts]\ngreet = greeting:main\n"
    files[info + "RECORD"] = "".join(f"{n},,\n" for n in [*files, info + "RECORD"])
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for n, text in files.items():
            wheel.writestr(n, text)
    return name
`,
}

// testPython installs a package into a virtual environment, and runs it.
func testPython(t *testing.T, by sandbox.Mechanism) {
	need(t, "python3-venv", "python3", "-c", "import venv, ensurepip")
	dir := t.TempDir()
	fill(t, dir, pythonPackage)
	w := newWorker(t, by, dir, env.Sandbox{})
	w.run(t, "python3", "-m", "venv", "venv")
	w.run(t, "venv/bin/pip", "--isolated", "--disable-pip-version-check", "install", "--no-index",
		"./pkg")
	if out := w.run(t, "venv/bin/pip", "--isolated", "freeze"); !strings.Contains(out, "greeting") {
		t.Errorf("installed: %s", out)
	}
	if out := w.run(t, "venv/bin/greet"); out != "written\n" {
		t.Errorf("the program prints %q", out)
	}
	wantFile(t, filepath.Join(dir, "out.txt"), "hello, pip\n")
	found, err := fs.Glob(os.DirFS(dir), "venv/lib/python3*/site-packages/greeting.py")
	if err != nil || len(found) != 1 {
		t.Errorf("outside the package is in %q, %v", found, err)
	}
}
