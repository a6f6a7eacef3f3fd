package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// engine returns a client of the daemon that tests share.
func engine(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(daemons.DockerHost(t)),
		client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// buildImage builds one of the product's images by the classic builder, under a name of the test's
// own, and removes it after the test.
func buildImage(t *testing.T, c *client.Client, name string, args map[string]*string) string {
	t.Helper()
	var tar bytes.Buffer
	if err := images.WriteContext(&tar, name, nil); err != nil {
		t.Fatal(err)
	}
	tag := fmt.Sprintf("sandboxagent-test/image-%s:%d", name, os.Getpid())
	answer, err := c.ImageBuild(t.Context(), &tar, build.ImageBuildOptions{
		Version: build.BuilderV1, Tags: []string{tag}, NetworkMode: "host", BuildArgs: args, Remove: true,
		ForceRemove: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	var said strings.Builder
	for dec := json.NewDecoder(answer.Body); ; {
		var message struct{ Stream, Error string }
		if err := dec.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		said.WriteString(message.Stream)
		if message.Error != "" {
			t.Fatalf("%s\n%s", message.Error, said.String())
		}
	}
	t.Cleanup(func() {
		if _, err := c.ImageRemove(context.WithoutCancel(t.Context()), tag,
			image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Error(err)
		}
	})
	return tag
}

// inImage runs a script in a container whose root is read-only, as the image's user, with no
// network, and returns what it prints.
func inImage(t *testing.T, c *client.Client, ref, script string) string {
	t.Helper()
	made, err := c.ContainerCreate(t.Context(), &container.Config{
		Image: ref, Cmd: []string{"sh", "-euc", script}, Volumes: map[string]struct{}{"/workspace": {}},
	}, &container.HostConfig{
		ReadonlyRootfs: true, NetworkMode: "none", CapDrop: []string{"ALL"},
		SecurityOpt: []string{"no-new-privileges"},
		Tmpfs: map[string]string{
			"/tmp":          "exec",
			"/home/sandbox": "exec,uid=10001,gid=10001,mode=0755",
		},
	}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		options := container.RemoveOptions{Force: true, RemoveVolumes: true}
		if err := c.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, options); err != nil {
			t.Error(err)
		}
	})
	ended, failed := c.ContainerWait(t.Context(), made.ID, container.WaitConditionNextExit)
	if err := c.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	var code int64
	select {
	case status := <-ended:
		code = status.StatusCode
	case err := <-failed:
		t.Fatal(err)
	}
	logs, err := c.ContainerLogs(t.Context(), made.ID, container.LogsOptions{
		ShowStdout: true,
		ShowStderr: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close() //nolint:errcheck // it was only read
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, logs); err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Fatalf("the script ends with %d\n%s%s", code, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func TestImagesAreBuiltByTheClassicBuilder(t *testing.T) {
	t.Parallel()
	c := engine(t)
	base := buildImage(t, c, "base", nil)
	is, err := c.ImageInspect(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	if got := is.Config.Labels[images.PreparedLabel]; got != "10001:10001" || is.Config.User != got ||
		is.Config.WorkingDir != "/workspace" {
		t.Errorf("label %q, user %q, working directory %q", got, is.Config.User, is.Config.WorkingDir)
	}
	const look = `echo "$(id -u):$(id -g) $(id -un) $HOME $PWD"
stat -c '%n %u:%g' /home/sandbox /workspace
touch "$HOME/x" /workspace/x
git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m m && git log --format=%s
rg --version | head -n 1 | cut -d ' ' -f 1
bash -c 'echo "${BASH_VERSION:+bash}"'
test -s /etc/ssl/certs/ca-certificates.crt && echo certificates
if touch /usr/x 2>/dev/null; then echo "the root is writable"; fi`
	want := "10001:10001 sandbox /home/sandbox /workspace\n/home/sandbox 10001:10001\n/workspace " +
		"10001:10001\n" +
		"m\nripgrep\nbash\ncertificates\n"
	if got := inImage(t, c, base, look); got != want {
		t.Errorf("in the base image:\n%swant\n%s", got, want)
	}
	t.Run("go", func(t *testing.T) {
		testGoImage(t, c, base)
	})
}

// testGoImage builds the image of Go on the base image and tests a module in it.
func testGoImage(t *testing.T, c *client.Client, base string) {
	if testing.Short() {
		t.Skip("it takes a while to unpack Go and a C compiler")
	}
	from := map[string]*string{images.BaseArg: &base}
	if _, err := c.ImageInspect(t.Context(), daemons.Golang); err != nil {
		daemons.Missing(t, "docker", "the daemon has no "+daemons.Golang+": go run ./integration/withdaemons --images makes one")
	}
	ref := buildImage(t, c, "go", from)
	is, err := c.ImageInspect(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if is.Config.Labels[images.PreparedLabel] != "10001:10001" || is.Config.User != "10001:10001" {
		t.Errorf("label and user are not inherited: %v, %s", is.Config.Labels, is.Config.User)
	}
	const script = `go version | cut -d ' ' -f 1-2
go env GOPATH GOCACHE GOTOOLCHAIN CGO_ENABLED
go mod init example.com/m 2>/dev/null
printf 'package m\n\nimport "testing"\n\nfunc Test(t *testing.T) {}\n' >m_test.go
go test -race . | cut -f 1-2
git --version | cut -d ' ' -f 1-2`
	want := "go version\n/home/sandbox/go\n/home/sandbox/.cache/go-build\nlocal\n1\nok  " +
		"\texample.com/m\ngit version\n"
	if got := inImage(t, c, ref, script); got != want {
		t.Errorf("in the image of Go:\n%swant\n%s", got, want)
	}
}
