package portable_test

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// TestCopyOutNames copies files out whose names mean something to some program on the way.
func TestCopyOutNames(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			e := k.open(t, nil)
			for _, name := range []string{`a\tb`, `back\\slash\`, "new\nline", "-dash", `"quoted"`, "*", "$HOME"} {
				if _, err := e.WriteFile(t.Context(), name, strings.NewReader(name), env.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				r, err := e.CopyOut(t.Context(), ".", name)
				if err != nil {
					t.Fatal(err)
				}
				archive := tar.NewReader(r)
				h, err := archive.Next()
				if err != nil {
					t.Fatalf("%q: %v", name, err)
				}
				data, err := io.ReadAll(archive)
				if err := errors.Join(err, r.Close()); err != nil || h.Name != name || string(data) != name {
					t.Errorf("%q arrives as %q with %q, %v", name, h.Name, data, err)
				}
			}
		})
	}
}
