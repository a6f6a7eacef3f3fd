package local_test

import (
	"os"
	"path/filepath"
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

// TestContractConfined runs the conformance suite in a directory of the working directory.
func TestContractConfined(t *testing.T) {
	t.Parallel()
	const outside = "uses names outside of the directory"
	envtest.Run(t, envtest.Options{
		Small: true,
		Groups: []string{
			"exec", "confine", "file", "write", "remove", "copy", "search", "readfiles",
		},
		New: func(t *testing.T) env.Environment {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			e, err := local.New(local.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			return wrap.Subdir(e, "sub")
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
