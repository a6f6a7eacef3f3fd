package docker_test

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// buildImage builds an image from a Dockerfile, and removes it in the end.
func buildImage(t *testing.T, host, name, dockerfile string) {
	t.Helper()
	cmd := exec.Command("docker", "-H", host, "build", "-q", "-t", name, "-")
	cmd.Stdin = strings.NewReader(dockerfile)
	cmd.Env = append(cmd.Environ(), "DOCKER_BUILDKIT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	t.Cleanup(func() { daemon(t, host, "rmi", name) })
}

// names returns the names of the listed environments.
func names(t *testing.T, e *docker.Engine) []string {
	t.Helper()
	list, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

// TestListIgnoresOtherContainers creates containers with labels of this package, which containers
// inherit from images.
func TestListIgnoresOtherContainers(t *testing.T) {
	t.Parallel()
	host, e := daemons.DockerHost(t), connect(t)
	for _, labels := range []string{
		"--label=sandboxagent.kind=sandbox --label=sandboxagent.session=evil",
		"--label=sandboxagent.kind=loader", "--label=sandboxagent.kind=prepared",
	} {
		args := append([]string{"create"}, strings.Fields(labels)...)
		id := daemon(t, host, append(args, "--name=list-test-of-somebody", daemons.Busybox, "true")...)
		for _, name := range names(t, e) {
			if strings.Contains(name, "list-test") {
				t.Errorf("with %s it is taken for one of ours", labels)
			}
		}
		daemon(t, host, "rm", id)
	}
	box := open(t, e, docker.Config{
		Options: remote.Options{Session: "list-test-ours"}, Image: daemons.Busybox,
	})
	if !slices.Contains(names(t, e), box.Container()) {
		t.Error("an environment is not listed")
	}
	done, err := e.Collect(t.Context(), remote.CollectOptions{DryRun: true, All: true})
	if err != nil {
		t.Fatal(err)
	}
	// A layer that two engines create at once keeps its name with only one of them.
	image := daemon(t, host, "inspect", "--format", "{{.Image}}", box.Container())
	layer := daemon(t, host, "inspect", "--format",
		"{{.Id}} {{.RepoTags}} {{json .Config.Labels}}", image)
	if !strings.Contains(layer, `"sandboxagent.kind":"prepared"`) {
		t.Errorf("the image of the environment is %s", layer)
	}
	for _, d := range done {
		if d.Name == box.Container() || strings.Contains(layer, d.Name) {
			t.Errorf("%s %s would be removed: %s", d.Kind, d.Name, d.Reason)
		}
	}
}

// TestLabelsStayWithTheirContainer opens an environment with a label on an image of which no layer
// has been made, and then one without.
func TestLabelsStayWithTheirContainer(t *testing.T) {
	t.Parallel()
	host, e := daemons.DockerHost(t), connect(t)
	const image = "sandboxagent-test-labels:latest"
	buildImage(t, host, image, "FROM "+daemons.Busybox+"\nLABEL of=labels-test\n")
	labelled := open(t, e, docker.Config{Image: image, Labels: map[string]string{"only-first": "yes"}})
	plain := open(t, e, docker.Config{Image: image})
	for box, want := range map[*docker.Environment]string{labelled: "yes", plain: ""} {
		if got := daemon(t, host, "inspect", "--format", `{{index .Config.Labels "only-first"}}`,
			box.Container()); got != want {
			t.Errorf("%s has the label %q, want %q", box.Container(), got, want)
		}
	}
	layer := daemon(t, host, "inspect", "--format", "{{.Image}}", plain.Container())
	if labels := daemon(t, host, "inspect", "--format", "{{json .Config.Labels}}",
		layer); strings.Contains(labels, "session") || strings.Contains(labels, "owner") {
		t.Errorf("the layer has the labels %s", labels)
	}
	if err := errors.Join(labelled.Close(), plain.Close()); err != nil {
		t.Error(err)
	}
	daemon(t, host, "rmi", daemon(t, host, "inspect", "--format", "{{index .RepoTags 0}}", layer))
}

// TestImageWithVolume uses an image that declares one of the directories a volume.
func TestImageWithVolume(t *testing.T) {
	t.Parallel()
	host, e := daemons.DockerHost(t), connect(t)
	const image = "sandboxagent-test-volume:latest"
	buildImage(t, host, image, "FROM "+daemons.Busybox+"\nVOLUME /workspace\n")
	_, err := e.Open(t.Context(), config(t, docker.Config{Image: image}))
	var start *docker.OpenError
	if !errors.As(err, &start) || !bytes.Contains([]byte(err.Error()), []byte("/workspace")) {
		t.Error(err)
	}
}
