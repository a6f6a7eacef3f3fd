package local_test

import (
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/local"
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
