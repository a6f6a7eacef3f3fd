package attack_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// imageAttack is an attack by an image, whose lines follow its base.
type imageAttack struct {
	name  string
	lines string
	// command runs in a container of the image, at whose end the files of the working directory come
	// back.
	command string
	// code is the exit code, and text a part of standard output or standard error.
	code int
	text string
}

// fakes are lines that put programs before those of the image, which leave a file in the working
// directory.
const fakes = `
RUN mkdir /fake && printf '#!/bin/busybox sh\necho ran >>/workspace/ran\necho 0\n' >/fake/sh && \
	chmod 755 /fake/sh && for p in tar git bash cat env id mount sandboxd docker-init; do \
	ln /fake/sh /fake/$p; done`

// imageAttacks are the attacks.
var imageAttacks = []imageAttack{
	{"nothing", "", "echo ok", 0, "ok"},
	{
		"a program that never ends",
		`ENTRYPOINT ["sh", "-c", "while :; do sh -c : & echo ran >>/workspace/ran; done"]
		CMD ["x"]
		SHELL ["/none"]
		STOPSIGNAL SIGCONT
		ONBUILD RUN none`, "echo ok", 0, "ok",
	},
	{"programs first in PATH", fakes + "\nENV PATH=/fake", "echo ok", 0, "ok"},
	{
		"programs in the place of all", fakes + "\nRUN ln -f /fake/sh /bin/tar && " +
			"ln -f /fake/sh /bin/git && ln -f /fake/sh /sbin/init", "echo ok", 0, "ok",
	},
	{"no shell", `RUN ["/bin/busybox", "rm", "-f", "/bin/sh"]`, "echo ok", 127, "/bin/sh"},
	{
		"variables", `ENV LD_PRELOAD=/none.so LD_LIBRARY_PATH=/none HOME=/ USER=root TMPDIR=/none GOGC=0 \
		GODEBUG=madvdontneed=1,x=y GOTRACEBACK=crash GOMAXPROCS=x SANDBOXAGENT_SESSION=x \
		SANDBOXAGENT_API_KEY=x BASH_ENV=/none ENV=/none IFS=/ PWD=/none`,
		"echo $HOME $USER", 0, "/home/sandbox sandbox",
	},
	{
		"symlinks in the place of directories",
		`RUN ln -s / /all && rm -rf /home /tmp && ln -s / /home && ln -s /etc /tmp
		WORKDIR /all/etc`, "pwd", 0, "/workspace\n",
	},
	{
		"a program in the place of the helper", `RUN mkdir /lair && cp /bin/busybox /lair/sandboxd && \
		ln -s /lair /.sandboxagent`, "pwd", 0, "/workspace\n",
	},
	{
		"a symlink in the place of the working directory", "RUN rm -rf /workspace && ln -s / /workspace",
		"echo ok", 125, "/workspace",
	},
	{
		"a file in the place of a directory", "RUN rm -rf /workspace && touch /workspace",
		"echo ok", 125, "/workspace",
	},
	{"a user that does not exist", "USER none:none", "id -u", 0, "10001"},
	{
		"a program with the rights of root", "COPY euid /bin/\nRUN chmod 6755 /bin/euid\nUSER root",
		`test "$(euid 2>&1) $(grep -c '^Cap.*0000000000000000$' /proc/self/status)" = "10001 5" &&
		echo ok`, 0, "ok\n",
	},
	{
		"a check and a volume", `HEALTHCHECK --interval=1s CMD echo ran >>/workspace/ran
		VOLUME /data /data/x`, "sleep 2; echo ok", 0, "ok",
	},
	{"the working directory as a volume", "VOLUME /", "echo ok", 125, "VOLUME"},
	{
		"labels", `LABEL sandboxagent.kind=sandbox sandboxagent.session=none sandboxagent.process=1:1:1 \
		sandboxagent.owner=` + escapes[:5] + `x sandboxagent.lease=1ns`, "echo ok", 0, "ok",
	},
	{
		"a label of a prepared image", "LABEL sandboxagent.prepared=10001:10001", "echo ok", 125,
		"permission denied",
	},
}

// engine is a daemon with the images of the attacks.
type engine string

// docker runs the docker command.
func (e engine) docker(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("docker", append([]string{"-H", string(e)}, args...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), "DOCKER_BUILDKIT=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("docker %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestHostileImage runs commands in containers of images that attack the program. The run is right,
// or ends with an error that names the cause; it leaves no container and no volume, and only files
// that the command made come back.
func TestHostileImage(t *testing.T) {
	long(t)
	e := engine(daemons.DockerHost(t))
	dir := t.TempDir()
	const euid = "package main\n\nimport \"os\"\n\nfunc main() { println(os.Geteuid()) }\n"
	if err := os.WriteFile(filepath.Join(dir, "euid.go"), []byte(euid), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "euid.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, tt := range imageAttacks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("sandboxagent-test/attack:%d-%d", i, rand.Uint32())
			e.docker(t, "FROM "+daemons.Busybox+"\n"+tt.lines, "build", "-q", "--network=none", "-t", name,
				"-f", "-", dir)
			t.Cleanup(func() { e.remove(t, name) })
			tt.try(t, e, name)
			if tt.name == "labels" {
				e.checkOthers(t, name)
			}
		})
	}
}

var volumeName = regexp.MustCompile(`volumes/([^/ ]+)`)

// try runs the command in the image.
func (tt imageAttack) try(t *testing.T, e engine, image string) {
	t.Helper()
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("attack=%d", rand.Uint64())
	got := program(t, work, []string{"DOCKER_HOST=" + string(e)}, "exec", "--env=docker",
		"--image="+image, "--pull=never", "--label="+mark, "--workdir=.", "--apply", "--timeout=2m", "--",
		"/bin/sh", "-c", "echo new >new; "+tt.command+"; grep volumes /proc/self/mountinfo >&2")
	t.Log(got)
	if got.code != tt.code || !got.contains(tt.text) {
		t.Errorf("want code %d and %q", tt.code, tt.text)
	}
	checkText(t, got)
	if left := e.docker(t, "", "ps", "-aq", "--filter=label="+mark); left != "" {
		t.Errorf("the containers %s are left", left)
	}
	for _, m := range volumeName.FindAllStringSubmatch(got.stderr, -1) {
		left := e.docker(t, "", "volume", "ls", "-q", "--filter=name="+m[1])
		if left != "" && !strings.HasPrefix(left, "sandboxagent-helper-") {
			t.Errorf("the volume %s is left", left)
		}
	}
	want := "mine"
	if tt.code == 0 {
		want = "mine new"
	}
	if names := strings.Join(names(t, work), " "); names != want {
		t.Errorf("the working directory has %s, want %s", names, want)
	}
}

// checkOthers creates a container of the image, which gets its labels. The program takes it for
// none of its own.
func (e engine) checkOthers(t *testing.T, image string) {
	t.Helper()
	name := fmt.Sprintf("attack-%d", rand.Uint64())
	e.docker(t, "", "create", "--name="+name, image, "true")
	defer e.docker(t, "", "rm", "-f", name)
	for _, args := range [][]string{{"env", "list"}, {"env", "gc", "--all", "--dry-run"}} {
		got := program(t, t.TempDir(), []string{"DOCKER_HOST=" + string(e)}, args...)
		if got.code != 0 || got.contains(name) {
			t.Errorf("%v: %s", args, got)
		}
		checkText(t, got)
	}
}

// loadImage loads an image without files, whose configuration names a processor.
func (e engine) loadImage(t *testing.T, name, arch string) {
	t.Helper()
	var archive, layer bytes.Buffer
	_ = tar.NewWriter(&layer).Close() // of a buffer
	sum := sha256.Sum256(layer.Bytes())
	w := tar.NewWriter(&archive)
	for name, content := range map[string]string{
		"layer.tar": layer.String(),
		"manifest.json": `[{"Config":"config.json","RepoTags":[` + quoted(name) +
			`],"Layers":["layer.tar"]}]`,
		"config.json": fmt.Sprintf(`{"os":"linux","architecture":%s,"config":{},"rootfs":`+
			`{"type":"layers","diff_ids":["sha256:%x"]}}`, quoted(arch), sum),
	} {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})
		if _, werr := w.Write([]byte(content)); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e.docker(t, archive.String(), "load", "-q")
}

// TestImageOfInventedProcessor uses images whose configuration names a processor that is a path, or
// that a terminal obeys.
func TestImageOfInventedProcessor(t *testing.T) {
	long(t)
	e := engine(daemons.DockerHost(t))
	for i, arch := range []string{"../../x", escapes, "amd64;id"} {
		name := fmt.Sprintf("sandboxagent-test/processor:%d-%d", i, rand.Uint32())
		e.loadImage(t, name, arch)
		t.Cleanup(func() { e.docker(t, "", "rmi", "-f", name) })
		for _, flag := range []string{"--pull=never", "--platform=linux/amd64"} {
			got := program(t, t.TempDir(), []string{"DOCKER_HOST=" + string(e)}, "exec", "--env=docker",
				"--image="+name, "--pull=never", flag, "--timeout=1m", "--", "true")
			t.Log(got)
			if got.code != 125 || got.contains("GOARCH="+arch) {
				t.Errorf("%q: %s", arch, got)
			}
			checkText(t, got)
		}
	}
}

// remove removes an image, and the layers that the program made on it.
func (e engine) remove(t *testing.T, image string) {
	t.Helper()
	id := e.docker(t, "", "inspect", "-f", "{{.Id}}", image)
	// Other tests remove theirs meanwhile, so not all can be inspected.
	script := `for layer in $(docker images -q --no-trunc --filter=label=sandboxagent.kind=prepared)
	do
		[ "$(docker inspect -f '{{.Parent}}' $layer)" != "$0" ] || docker rmi -f $layer
	done`
	cmd := exec.Command("sh", "-c", script, id)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+string(e))
	_ = cmd.Run() // a layer that is left keeps the image, which is an error
	e.docker(t, "", "rmi", image)
}
