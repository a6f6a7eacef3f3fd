package integration_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// product builds one of the product's images, with the programs that it has.
func (d *dockerHost) product(
	t *testing.T, name string, programs map[string][]byte, args map[string]*string,
) string {
	t.Helper()
	var tar bytes.Buffer
	if err := images.WriteContext(&tar, name, programs); err != nil {
		t.Fatal(err)
	}
	return d.buildContext(t, name, &tar, build.ImageBuildOptions{NetworkMode: "host", BuildArgs: args})
}

// inImage runs a command in a container whose root is read-only, as the image's user, with no
// network, and returns its output.
func (d *dockerHost) inImage(t *testing.T, ref string, args ...string) string {
	t.Helper()
	c := d.api
	made, err := c.ContainerCreate(t.Context(), &container.Config{
		Image: ref, Cmd: args, Volumes: map[string]struct{}{"/workspace": {}},
	}, &container.HostConfig{
		ReadonlyRootfs: true, NetworkMode: "none", CapDrop: []string{"ALL"},
		SecurityOpt: []string{"no-new-privileges"},
		Tmpfs: map[string]string{"/tmp": "exec", "/home/sandbox": "exec,uid=10001,gid=10001," +
			"mode=0755"},
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
		ShowStdout: true, ShowStderr: true,
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
		t.Fatalf("the command exits with %d\n%s%s", code, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func TestImagesAreBuiltByTheClassicBuilder(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	base := images.DefaultReference // built earlier, once for each change of its Dockerfile
	if testing.Short() {
		d.need(t, base)
	} else {
		base = d.product(t, "base", nil, nil)
	}
	is, err := d.api.ImageInspect(t.Context(), base)
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
git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m m
git log --format=%s
rg --version | head -n 1 | cut -d ' ' -f 1
bash -c 'echo "${BASH_VERSION:+bash}"'
test -s /etc/ssl/certs/ca-certificates.crt && echo certificates
if touch /usr/x 2>/dev/null; then echo "the root is writable"; fi`
	want := "10001:10001 sandbox /home/sandbox /workspace\n/home/sandbox 10001:10001\n/workspace " +
		"10001:10001\n" +
		"m\nripgrep\nbash\ncertificates\n"
	if got := d.inImage(t, base, "sh", "-euc", look); got != want {
		t.Errorf("in the base image:\n%swant\n%s", got, want)
	}
	t.Run("go", func(t *testing.T) {
		testGoImage(t, d, base)
	})
	t.Run("agent", func(t *testing.T) {
		testAgentImage(t, d, base)
	})
}

// testAgentImage builds the image of agents, which has two files: the program and certificates.
func testAgentImage(t *testing.T, d *dockerHost, base string) {
	program, err := os.ReadFile(command(t))
	if err != nil {
		t.Fatal(err)
	}
	ref := d.product(t, "agent", map[string][]byte{"sandboxagent": program},
		map[string]*string{images.BaseArg: &base})
	is, err := d.api.ImageInspect(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if is.Config.User != "10001:10001" || len(is.RootFS.Layers) != 2 {
		t.Errorf("user %q, layers %v", is.Config.User, is.RootFS.Layers)
	}
	if got := d.inImage(t, ref, "version"); !strings.HasPrefix(got, "sandboxagent ") {
		t.Errorf("its version is %q", got)
	}
	made, err := d.api.ContainerCreate(t.Context(), &container.Config{Image: ref}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	file, err := d.api.ContainerStatPath(t.Context(), made.ID, "/etc/ssl/certs/ca-certificates.crt")
	if err != nil || file.Size == 0 {
		t.Errorf("the certificates are %+v, %v", file, err)
	}
	err = d.api.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{})
	if err != nil {
		t.Error(err)
	}
}

// testGoImage builds the image of Go on the base image and tests a module in it.
func testGoImage(t *testing.T, d *dockerHost, base string) {
	if testing.Short() {
		t.Skip("unpacks Go and a C compiler")
	}
	from := map[string]*string{images.BaseArg: &base}
	d.need(t, daemons.Golang)
	ref := d.product(t, "go", nil, from)
	is, err := d.api.ImageInspect(t.Context(), ref)
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
	if got := d.inImage(t, ref, "sh", "-euc", script); got != want {
		t.Errorf("in the image of Go:\n%swant\n%s", got, want)
	}
}
