package local_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// TestContract runs the conformance suite. TestSupervisedContract has the cases of files and of
// output, which the helper does not change.
func TestContract(t *testing.T) {
	t.Parallel()
	groups := []string{"kill", "background", "life", "confine"}
	if full() {
		groups = nil
	}
	envtest.Run(t, envtest.Options{
		Groups: groups,
		New: func(t *testing.T) env.Environment {
			e, err := local.New(local.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	})
}

// unconfined hides that an environment can confine commands.
type unconfined struct{ *local.Environment }

func (u unconfined) Info() env.Info {
	info := u.Environment.Info()
	info.Guarantees = slices.DeleteFunc(info.Guarantees, func(g env.Guarantee) bool {
		return g.Name == env.ConfinedCommands
	})
	return info
}

// inSubdir returns an environment that is kept to a directory of its working directory.
func inSubdir(t *testing.T, wrapped func(*local.Environment) env.Environment) env.Environment {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return wrap.Subdir(wrapped(e), "sub")
}

// TestContractSubdir runs the conformance suite in a directory of the working directory. Confined
// commands cannot make the symlinks that cases need.
func TestContractSubdir(t *testing.T) {
	t.Parallel()
	const outside = "uses names outside of the directory"
	envtest.Run(t, envtest.Options{
		Small:  true,
		Groups: []string{"exec", "file", "write", "remove", "copy", "search", "readfiles"},
		New: func(t *testing.T) env.Environment {
			return inSubdir(t, func(e *local.Environment) env.Environment { return unconfined{e} })
		},
		Known: map[string]string{
			"file/device":                outside,
			"file/relative_and_absolute": outside,
			"file/directory_is_no_file":  outside,
			"file/missing":               outside,
			"readfiles/special_files":    outside,
		},
	})
}

// TestContractConfined runs the cases that confined commands pass.
func TestContractConfined(t *testing.T) {
	t.Parallel()
	envtest.Run(t, envtest.Options{
		Small:  true,
		Groups: []string{"confine", "kill", "stream", "search"},
		New: func(t *testing.T) env.Environment {
			return inSubdir(t, func(e *local.Environment) env.Environment { return e })
		},
	})
}
