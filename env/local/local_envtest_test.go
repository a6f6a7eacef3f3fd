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

// TestContract runs the conformance suite.
func TestContract(t *testing.T) {
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			e, err := local.New(local.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	})
}

// TestContractConfined runs the conformance suite in a folder of the working directory.
func TestContractConfined(t *testing.T) {
	const outside = "the names lie outside of the folder"
	envtest.Run(t, envtest.Options{
		Small: true,
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
			"file/folder_is_no_file":     outside,
			"file/missing":               outside,
			"readfiles/special_files":    outside,
		},
	})
}
