//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shell runs a script with the program in PATH, and returns its output in lines.
func shell(t *testing.T, name string, args ...string) []string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "sandboxagent")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = "testdata"
	cmd.Env = append(os.Environ(), beVar+"=sandboxagent", "HOME="+dir,
		"PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestBashCompletion(t *testing.T) {
	t.Parallel()
	script := bashCompletion + `
complete -p sandboxagent >/dev/null || exit
for line in 'env l' 'exec --env ' 'exec --env = d' 'exec --env = do' 'run --max-to' \
	'run --verify ' 'run --patch scri' 'run --patch = scri' 'run --patch =' 'exec -- scri'; do
	IFS=' ' read -ra COMP_WORDS <<<"sandboxagent $line"
	[[ $line = *' ' ]] && COMP_WORDS+=('')
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	COMPREPLY=()
	_sandboxagent
	echo "${COMPREPLY[@]}"
done`
	want := []string{
		"list", "local docker k8s ssh", "docker", "docker", "--max-tool-rounds --max-tokens", "",
		"script", "script", "script", "script",
	}
	if got := shell(t, "bash", "--norc", "-c", script); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestZshCompletion(t *testing.T) {
	t.Parallel()
	shell(t, "zsh", "-n", "-c", zshCompletion)
}

func TestFishCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"exec --env=d": "--env=docker", "env l": "list", "run --patch scri": "script/",
	} {
		script := fishCompletion + "\ncomplete -C 'sandboxagent " + line + "'"
		got := shell(t, "fish", "--no-config", "-c", script)
		if word, _, _ := strings.Cut(got[0], "\t"); word != want || len(got) > 1 { // before a description
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
