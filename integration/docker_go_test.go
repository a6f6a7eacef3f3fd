package integration_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestDockerWithGo works on Go modules in containers without a network.
func TestDockerWithGo(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	ref := d.goImage(t)
	t.Run("repository", func(t *testing.T) { proveRepository(t, d, ref) })
	t.Run("demo", func(t *testing.T) { proveDemo(t, d, ref) })
}

// goImage returns the product's image of Go, or else builds one without a C compiler, which would
// need a network.
func (d *dockerHost) goImage(t *testing.T) string {
	t.Helper()
	if is, ok := images.Find("go"); ok {
		if _, err := d.api.ImageInspect(t.Context(), is.Reference); err == nil {
			return is.Reference
		}
	}
	d.need(t, images.DefaultReference)
	d.need(t, daemons.Golang)
	files := map[string]string{}
	for name, text := range readTree(t, shop(t)) {
		files["shop/"+name] = text
	}
	// The build cache of the image has the packages of the standard library that the tests need.
	return d.build(t, "go", fmt.Sprintf(`FROM %s AS go
FROM %s
COPY --from=go /usr/local/go /usr/local/go
ENV GOTOOLCHAIN=local CGO_ENABLED=0
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY shop /tmp/warm/
RUN cd /tmp/warm && HOME=/home/sandbox && export HOME && go vet ./... && (go test ./... || true)
`, daemons.Golang, images.DefaultReference), files)
}

// build builds an image from a Dockerfile, with files beside it, and removes it after the test.
func (d *dockerHost) build(t *testing.T, name, dockerfile string, files map[string]string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(name, content string) {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)),
		})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("Dockerfile", dockerfile)
	for name, content := range files {
		add(name, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return d.buildContext(t, name, &archive, build.ImageBuildOptions{NetworkMode: "none"})
}

// buildContext builds an image by the classic builder and removes it after the test.
func (d *dockerHost) buildContext(
	t *testing.T, name string, archive io.Reader, options build.ImageBuildOptions,
) string {
	t.Helper()
	tag := fmt.Sprintf("sandboxagent-test/%s:%s", name, newMark())
	options.Version, options.Tags = build.BuilderV1, []string{tag}
	options.Remove, options.ForceRemove = true, true
	answer, err := d.api.ImageBuild(t.Context(), archive, options)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	t.Cleanup(func() { d.removeImage(t, tag) })
	var log strings.Builder
	for dec := json.NewDecoder(answer.Body); ; {
		var message struct{ Stream, Error string }
		if err := dec.Decode(&message); errors.Is(err, io.EOF) {
			return tag
		} else if err != nil || message.Error != "" {
			t.Fatalf("build %s: %v %s\n%s", name, err, message.Error, log.String())
		}
		log.WriteString(message.Stream)
	}
}

// removeImage removes an image, and first the layers that the program has made on top of it.
func (d *dockerHost) removeImage(t *testing.T, tag string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	is, err := d.api.ImageInspect(ctx, tag)
	if err != nil {
		return // it was not built
	}
	layers, err := d.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label",
		kindLabel+"=prepared"))})
	if err != nil {
		t.Error(err)
	}
	ids := []string{tag}
	for _, layer := range layers {
		if layer.ParentID == is.ID {
			ids = append([]string{layer.ID}, ids...)
		}
	}
	for _, id := range ids {
		if _, err := d.api.ImageRemove(ctx, id, image.RemoveOptions{
			Force: true, PruneChildren: true,
		}); err != nil {
			t.Error(err)
		}
	}
}

// proveRepository lets the model of TestRealRepository work in a container and applies its changes
// to the host.
func proveRepository(t *testing.T, d *dockerHost, ref string) {
	t.Parallel()
	dir := shop(t)
	repairShop(t, dir, func(vars []string, args ...string) ran {
		return d.run(t, dir, vars, append(args, "--image="+ref, "--apply")...)
	})
	checkShop(t, dir)
	tree := readTree(t, dir)
	if tree["debug.log"] != "ignored\n" || tree["bin/old"] != "ignored\n" || tree["run.log"] != "" ||
		tree["bin/shop"] != "" {
		t.Errorf("files that git ignores have changed: %q, %q", tree["debug.log"], tree["bin/old"])
	}
}

func proveDemo(t *testing.T, d *dockerHost, ref string) {
	t.Parallel()
	got := finish(t, d.command(t, t.TempDir(), "", "demo", "--image="+ref))
	if got.code != 0 || !strings.Contains(got.stdout, "\n+++ b/") {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}
