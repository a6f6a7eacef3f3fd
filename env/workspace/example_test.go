package workspace_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// It uploads a directory, changes it in the environment, and applies the changes on the host.
func Example() {
	if err := example(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 file uploaded
	// written: [answer]
	// 42
}

func example(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	host, envDir := filepath.Join(dir, "host"), filepath.Join(dir, "there")
	for _, d := range []string{host, envDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(host, "question"), []byte("?"), 0o600); err != nil {
		return err
	}

	w, err := workspace.Open(ctx, host, workspace.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	e, err := local.New(local.Config{Dir: envDir}) // Any environment will do.
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	if err := w.Upload(ctx, e); err != nil {
		return err
	}
	fmt.Println(w.Files(), "file uploaded")

	if _, err := e.WriteFile(ctx, "answer", strings.NewReader("42"), env.WriteOptions{}); err != nil {
		return err
	}
	changes, err := w.Changes(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Close() }()
	applied, err := changes.Apply(ctx)
	if err != nil {
		return err
	}
	fmt.Println("written:", applied.Written)
	answer, err := os.ReadFile(filepath.Join(host, "answer"))
	fmt.Println(string(answer))
	return err
}
