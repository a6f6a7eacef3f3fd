package integration_test

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/images"
)

// differences lists the requirements of which less is proven in containers and pods, with the
// reasons.
var differences = map[string]string{
	"9.8.4": "from the repository's root as the working directory, for a directory below it goes " +
		"into the container alone",
}

// TestDoDOnDocker proves the definition of done with all sessions in containers.
func TestDoDOnDocker(t *testing.T) {
	t.Parallel()
	sharedDocker(t).need(t, images.DefaultReference) // for git and rg
	proveElsewhere(t)
}

// backendOf returns the backend of the sessions of a test, which follows from the test's name.
func backendOf(t testing.TB) string {
	if strings.HasPrefix(t.Name(), "TestDoDOnDocker/") {
		return "docker"
	}
	if strings.HasPrefix(t.Name(), "TestDoDOnK8s/") {
		return "k8s"
	}
	if onHost(t) {
		return "ssh"
	}
	return "local"
}

// openEnvironment opens the environment of a session in dir, or with the content of dir, until the
// test ends.
func openEnvironment(t testing.TB, dir string) env.Environment {
	t.Helper()
	switch backendOf(t) {
	case "docker":
		return openContainer(t, dir)
	case "k8s":
		return openPod(t, dir)
	case "ssh":
		return openOnHost(t, dir)
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, e)
	return e
}

// openContainer opens a container and uploads dir.
func openContainer(t testing.TB, dir string) env.Environment {
	t.Helper()
	engine, err := docker.Connect(t.Context(), docker.Address{Host: sharedDocker(t).host})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, engine)
	e, err := engine.Open(t.Context(), docker.Config{
		Options: remote.Options{
			Helper: remote.Helper{Binary: command(t), Args: []string{"__sandboxd"}},
		},
		Image: images.DefaultReference,
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, e)
	tree, err := workspace.Open(t.Context(), dir, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, tree)
	if err := tree.Upload(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// closeAfter closes c after the test, without an error.
func closeAfter(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
