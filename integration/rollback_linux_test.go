package integration_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

// rollbackRounds is the number of rounds of calls of a session.
const rollbackRounds = 6

// TestRollback runs sessions whose commands change a tree at random, compares their points, takes
// changes back, and rolls them back to points. The tree must be that of a model, a directory in
// which the same commands have run. It has 10,000 more files for some rounds, in short tests on
// this machine only.
func TestRollback(t *testing.T) {
	t.Parallel()
	t.Run("local", func(t *testing.T) {
		proveRollback(t, func(t *testing.T, dir string, vars []string, args ...string) ran {
			return runCommand(t, dir, vars, append(args, "--yes")...)
		}, true, 10_000)
	})
	many := scaled(10_000, 10)
	t.Run("ssh", func(t *testing.T) {
		s := sshd(t, daemons.SSHDConfig{})
		proveRollback(t, func(t *testing.T, dir string, vars []string, args ...string) ran {
			args = append(args, "--yes", "--workdir="+dir, "--patch="+filepath.Join(t.TempDir(), "p"),
				"--ttl=15s") // of the helper of a program that is killed
			return runCommand(t, dir, vars, append(args, hostFlags(s)...)...)
		}, true, many)
	})
	t.Run("docker", func(t *testing.T) {
		d := sharedDocker(t)
		proveRollback(t, func(t *testing.T, dir string, vars []string, args ...string) ran {
			return d.run(t, dir, vars, slices.Insert(args, 1, "--apply")...)
		}, false, many)
	})
}

// proveRollback uses run for the commands of a session, which ends with the files of the
// environment in the directory of the host. Many is the number of files that come and go together.
func proveRollback(
	t *testing.T, run func(t *testing.T, dir string, vars []string, args ...string) ran,
	inPlace bool, many int,
) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it only makes commands
	dir, model, outside := t.TempDir(), t.TempDir(), t.TempDir()
	for _, d := range []string{dir, model} {
		writeTree(t, d, map[string]string{"a": "a\n", "d/b": "b\n", "d/e/c": "\x00\xff"})
		git(t, d, "init", "-q")
	}
	states := []map[string]string{filesIn(t, model)}
	script := "turns:\n"
	for round := range rollbackRounds {
		commands := randomChanges(random)
		switch round {
		case 1:
			commands += fmt.Sprintf("\nmkdir many; i=0; while [ $i -lt %d ]; do "+
				"echo $i > many/$i; i=$((i+1)); done", many)
		case 3:
			commands += "\nrm -r many"
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", commands)
		cmd.Dir = model
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, commands, out)
		}
		states = append(states, filesIn(t, model))
		arguments, err := json.Marshal(map[string]any{"command": commands, "timeout_ms": 500_000})
		if err != nil {
			t.Fatal(err)
		}
		script += fmt.Sprintf("  - calls: [{tool: shell, args: %s}]\n", arguments)
	}
	writeTree(t, outside, map[string]string{
		"model.yaml": script + "  - text: done\n", "none.yaml": "turns: [{text: done}]\n",
	})
	vars := []string{"SANDBOXAGENT_STATE_DIR=" + filepath.Join(outside, "state")}
	must := func(r ran) string {
		t.Helper()
		if r.code != 0 {
			t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	must(run(t, dir, vars, "run", "--model=script:"+filepath.Join(outside, "model.yaml"), "change"))
	checkState(t, "after the run", states[rollbackRounds], filesIn(t, dir))
	id := sessionIn(t, filepath.Join(outside, "state"))
	r, err := journal.Load(filepath.Join(outside, "state", "sessions", id))
	if err != nil || len(r.Points) != rollbackRounds+2 {
		t.Fatalf("points %+v, %v", r.Points, err)
	}
	k := random.IntN(rollbackRounds)
	point := fmt.Sprintf("%s@%d", id, r.Points[k].Seq)
	fork := strings.TrimSpace(must(runCommand(t, outside, vars, "session", "fork", point)))
	for of, state := range map[string]map[string]string{
		point: states[k], fork: states[k], id: states[rollbackRounds],
	} {
		diff := must(runCommand(t, outside, vars, "session", "diff", fork, of))
		checkDiff(t, fmt.Sprintf("a fork at point %d and %s", k, of), states[k], state, diff)
	}
	if !inPlace { // a fork has its changes alone
		patch := filepath.Join(outside, "fork.patch")
		must(run(t, dir, vars, "session", "resume", fork, "go on", "--apply=false", "--patch="+patch,
			"--model=script:"+filepath.Join(outside, "none.yaml")))
		git(t, model, "apply", "--allow-empty", patch)
		checkState(t, fmt.Sprintf("of a fork at point %d", k), states[k], filesIn(t, model))
	}
	checkState(t, "beside a fork", states[rollbackRounds], filesIn(t, dir))
	for range 3 {
		i, j := random.IntN(rollbackRounds+1), random.IntN(rollbackRounds+1)
		from, to := fmt.Sprintf("%s@%d", id, r.Points[i].Seq), fmt.Sprintf("%s@%d", id, r.Points[j].Seq)
		diff := must(runCommand(t, outside, vars, "session", "diff", from, to))
		checkDiff(t, fmt.Sprintf("points %d and %d", i, j), states[i], states[j], diff)
	}
	goOn := func(k int, when string) {
		t.Helper()
		if !inPlace {
			must(run(t, dir, vars, "session", "resume", id, "go on",
				"--model=script:"+filepath.Join(outside, "none.yaml")))
		}
		checkState(t, fmt.Sprintf("%s point %d", when, k), states[k], filesIn(t, dir))
	}
	last := rollbackRounds
	for last > 0 && maps.Equal(states[last], states[last-1]) {
		last--
	}
	undo := exec.CommandContext(t.Context(), command(t), "session", "undo", id)
	undo.Dir, undo.Env = outside, append(os.Environ(), vars...)
	killAt(t, undo, "before 1")
	_ = undo.Run() // it is killed
	pending := filepath.Join(outside, "state", "sessions", id, "rollback.json")
	if _, err := os.Stat(pending); undo.ProcessState.Exited() || err != nil {
		t.Errorf("undo was not killed: %v", err)
	}
	if got := runCommand(t, outside, vars, "session", "undo", id); got.code != 0 ||
		!strings.Contains(got.stderr, "is finished") {
		t.Errorf("undo after one that was killed: exit code %d\n%s", got.code, got.stderr)
	}
	goOn(max(last-1, 0), "after undo, at")
	for k := last - 1; k >= 0; k-- {
		if k > 0 && random.IntN(3) == 0 {
			continue
		}
		must(runCommand(t, outside, vars, "session", "rollback",
			fmt.Sprintf("%s@%d", id, r.Points[k].Seq)))
		goOn(k, "at")
	}
	got := runCommand(t, outside, vars, "session", "rollback",
		fmt.Sprintf("%s@%d", id, r.Points[1].Seq))
	if got.code != 2 || !strings.Contains(got.stderr, "none of the points") {
		t.Errorf("a point that does not exist any more: exit code %d\n%s", got.code, got.stderr)
	}
}

// checkDiff checks that a diff of two points has each file that differs, and each line that is new
// in a text.
func checkDiff(t *testing.T, of string, before, after map[string]string, diff string) {
	t.Helper()
	names := changedNames(before, after)
	if diff := cmp.Diff(names, namesInDiff(diff)); diff != "" {
		t.Errorf("the files in the diff of %s (-want +got):\n%s", of, diff)
	}
	for _, name := range names {
		old, text := textOf(before[name]), textOf(after[name])
		if strings.Contains(old+text, "\x00") {
			continue // it is binary
		}
		for line := range strings.Lines(text) {
			if !strings.Contains(old, line) && !strings.Contains(diff, "\n+"+line) {
				t.Errorf("the diff of %s lacks the line %q of %s:\n%s", of, line, name, diff)
			}
		}
	}
}

// changedNames returns the sorted names of files that differ.
func changedNames(before, after map[string]string) (names []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	return names
}

var diffName = regexp.MustCompile(
	`(?m)^(?:new file (.+), mode \d+|deleted file (.+)|mode of (.+) from \d+ to \d+|` +
		`binary file (.+)|\+\+\+ b/(.+))$`)

// namesInDiff returns the sorted names of the files in the output of session diff.
func namesInDiff(diff string) (names []string) {
	for _, m := range diffName.FindAllStringSubmatch(diff, -1) {
		names = append(names, strings.Join(m[1:], ""))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// textOf returns the content of a file of filesIn; empty if it is a symlink or missing.
func textOf(file string) string {
	_, quoted, _ := strings.Cut(file, " ")
	text, _ := strconv.Unquote(quoted)
	return text
}

// sessionIn returns the ID of the only session in a directory for state.
func sessionIn(t *testing.T, state string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(state, "sessions", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("sessions %v, %v", names, err)
	}
	return filepath.Base(names[0])
}

// randomChanges returns commands that change the tree of proveRollback: contents, also binary ones,
// modes, symlinks, names, and files that become directories.
func randomChanges(random *rand.Rand) string {
	names := []string{"a", "d/b", "d/e/c", "new", "d/new", "x/y/z", "link"}
	name := func() string { return names[random.IntN(len(names))] }
	var lines []string
	for range 1 + random.IntN(4) {
		at, other, n := name(), name(), random.IntN(1000)
		dir := "mkdir -p " + filepath.Dir(at) + " 2>/dev/null; "
		lines = append(lines, []string{
			fmt.Sprintf("rm -rf %s; %secho %d > %s", at, dir, n, at),
			fmt.Sprintf("[ ! -f %s ] || [ -L %s ] || echo %d >> %s", at, at, n, at),
			fmt.Sprintf(`rm -rf %s; %sprintf '\000\377%d' > %s`, at, dir, n, at),
			fmt.Sprintf("rm -rf %s", at),
			fmt.Sprintf("[ ! -f %s ] || [ -L %s ] || chmod a+x %s", at, at, at),
			fmt.Sprintf("[ ! -f %s ] || [ -L %s ] || chmod a-x %s", at, at, at),
			fmt.Sprintf("rm -rf %s; %sln -s %s %s", at, dir, other, at),
			fmt.Sprintf("[ ! -e %s ] || { rm -rf moved%d; mv %s moved%d; }", at, n%3, at, n%3),
			fmt.Sprintf("rm -rf %s; mkdir -p %s; echo %d > %s/in", at, at, n, at),
			fmt.Sprintf("for i in 1 2 3 4 5; do echo %d > many$i; done", n),
		}[random.IntN(10)]+" || true")
	}
	return strings.Join(lines, "\n")
}

// filesIn returns the files below a directory, but for git's: contents with the right to execute,
// and targets of symlinks.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		rel, err := filepath.Rel(dir, name)
		switch {
		case err != nil || d.IsDir():
			return err
		case d.Type() == fs.ModeSymlink:
			files[rel], err = os.Readlink(name)
			files[rel] = "-> " + files[rel]
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		files[rel] = fmt.Sprintf("%v %q", info.Mode()&0o100 != 0, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func checkState(t *testing.T, when string, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files %s (-want +got):\n%s", when, diff)
	}
}
