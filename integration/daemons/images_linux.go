package daemons

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// source makes one image: files writes its root as a tar stream.
type source struct {
	files   func(ctx context.Context, cache string, w io.Writer) error
	arch    string   // empty for the machine's
	changes []string // instructions of a Dockerfile
}

func sources() map[string]source {
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	path := "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	probe := []string{path, `CMD ["/bin/probe", "sleep", "24h"]`}
	return map[string]source{
		Debian:  {files: debian, changes: []string{path, `CMD ["bash"]`}},
		Busybox: {files: busybox, changes: []string{path, `CMD ["sh"]`}},
		Empty:   {files: probeFor(runtime.GOARCH), changes: probe},
		Helper: {files: helperFile, changes: []string{
			"USER 10001:10001", `ENTRYPOINT ["/sandboxd"]`,
		}},
		Agent: {files: agentFile, changes: []string{
			"USER 10001:10001", `ENTRYPOINT ["/sandboxagent"]`,
		}},
		Foreign: {files: probeFor(other), arch: other},
		Golang:  {files: goroot, changes: []string{"ENV PATH=/usr/local/go/bin:/usr/bin:/bin"}},
	}
}

// Load puts images into the daemon that it lacks: those of the constants, and the product's by
// their references, except images with embedded programs. The first use of Debian on a machine
// takes half a minute and needs a mirror of Debian, by default that of apt; the product's images
// take longer.
func (d *Docker) Load(ctx context.Context, names ...string) error {
	cache := d.config.Cache
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			user = os.TempDir()
		}
		cache = filepath.Join(user, "sandboxagent-build", "images")
	}
	for _, name := range names {
		if answer, err := call(ctx, d.client, http.MethodGet, "/images/"+name+"/json", nil,
			nil); err == nil {
			_ = answer.Close()
			continue
		}
		err := errors.New("it is neither a test image nor the product's")
		if from, ok := sources()[name]; ok {
			err = d.load(ctx, cache, name, from)
		} else if image, ok := product(name); ok {
			err = d.loadProduct(ctx, cache, image)
		}
		if err != nil {
			return fmt.Errorf("load image %s: %w", name, err)
		}
	}
	return nil
}

func (d *Docker) load(ctx context.Context, cache, name string, from source) error {
	if from.arch != "" {
		return d.loadForeign(ctx, cache, name, from)
	}
	repo, tag, _ := strings.Cut(name, ":")
	query := url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": from.changes}
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := from.files(ctx, cache, w)
		w.CloseWithError(err)
		made <- err
	}()
	return d.feed(ctx, "/images/create", query, r, made)
}

// loadForeign loads an image of another architecture, which an import cannot make, in the form that
// docker save has.
func (d *Docker) loadForeign(ctx context.Context, cache, name string, from source) error {
	var layer, archive bytes.Buffer
	if err := from.files(ctx, cache, &layer); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": from.arch, "os": "linux", "config": map[string]any{"Cmd": []string{"/bin/probe"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x",
			sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   "config.json",
		"RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{"layer.tar", layer.Bytes()}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := writeFile(w, tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644},
			f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return stream(ctx, d.client, "/images/load", nil, &archive)
}

// cached writes to w the file of the cache that key names; fill makes a missing one. A file appears
// complete or not at all.
func cached(cache, key string, w io.Writer, fill func(*os.File) error) error {
	name := filepath.Join(cache, key)
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		if err := fillCache(cache, name, fill); err != nil {
			return err
		}
		f, err = os.Open(name)
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(w, f)
	return err
}

func fillCache(cache, name string, fill func(*os.File) error) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(cache, ".new-")
	if err != nil {
		return err
	}
	err = errors.Join(fill(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// debian makes the root of a minimal Debian, less documents and apt's cache.
func debian(ctx context.Context, cache string, w io.Writer) error {
	const suite = "bookworm"
	mirror := debianMirror(ctx, suite)
	skip := []string{
		"./dev/*", "./proc/*", "./sys/*", "./etc/hostname", "./etc/resolv.conf", "./var/cache/apt/*",
		"./var/lib/apt/lists/*",
		"./var/log/*", "./usr/share/doc/*", "./usr/share/info/*", "./usr/share/locale/*",
		"./usr/share/man/*",
	}
	made := sha256.Sum256([]byte(strings.Join(append([]string{suite, mirror, "minbase"}, skip...),
		"\n")))
	key := fmt.Sprintf("debian-%s-%s-%x.tar", suite, runtime.GOARCH, made[:6])
	return cached(cache, key, w, func(f *os.File) error {
		dir, err := os.MkdirTemp("", "sandboxagent-debian-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		root := filepath.Join(dir, "root")
		bootstrap := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", suite, root, mirror)
		// Its mounts end with it, however it ends; cancellation kills its whole process group.
		bootstrap.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Setpgid: true}
		bootstrap.Cancel = func() error { return unix.Kill(-bootstrap.Process.Pid, unix.SIGKILL) }
		if err := run(bootstrap); err != nil {
			return err
		}
		args := []string{"--numeric-owner", "--one-file-system", "--sort=name"}
		for _, pattern := range skip {
			args = append(args, "--exclude="+pattern)
		}
		archive := exec.CommandContext(ctx, "tar", append(args, "-C", root, "-c", ".")...)
		archive.Stdout = f
		return run(archive)
	})
}

// debianMirror returns the mirror from which apt gets the suite.
func debianMirror(ctx context.Context, suite string) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format",
		"$(SITE) $(CODENAME) $(ORIGIN) $(COMPONENT)").Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) == 4 && f[1] == suite && f[2] == "Debian" && f[3] == "main" && strings.HasPrefix(f[0],
				"http") {
				return f[0]
			}
		}
	}
	return "http://deb.debian.org/debian"
}

// busybox makes a root with the machine's static busybox under the names of all its tools.
func busybox(ctx context.Context, _ string, w io.Writer) error {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("the package busybox-static is needed: %w", err)
	}
	tools, err := exec.CommandContext(ctx, "/bin/busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("list the tools of busybox: %w", err)
	}
	files := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "root/", Mode: 0o700},
		{Typeflag: tar.TypeSymlink, Name: "usr/bin", Linkname: "../bin"},
		{Typeflag: tar.TypeSymlink, Name: "sbin", Linkname: "bin"},
	}
	for tool := range strings.FieldsSeq(string(tools)) {
		if tool != "busybox" {
			files = append(files, tar.Header{
				Typeflag: tar.TypeSymlink, Name: "bin/" + tool, Linkname: "busybox",
			})
		}
	}
	return writeRoot(w, "bin/busybox", program, files...)
}

// probeFor makes a root with the test program, built for an architecture, and nothing else.
func probeFor(arch string) func(context.Context, string, io.Writer) error {
	return func(ctx context.Context, _ string, w io.Writer) error {
		return programFile(ctx, w, "integration/daemons/testdata/empty", arch, "bin/probe")
	}
}

// helperFile makes a root with the helper and nothing else.
func helperFile(ctx context.Context, _ string, w io.Writer) error {
	return programFile(ctx, w, "cmd/sandboxd", runtime.GOARCH, "sandboxd")
}

func agentFile(ctx context.Context, _ string, w io.Writer) error {
	return programFile(ctx, w, "cmd/sandboxagent", runtime.GOARCH, "sandboxagent")
}

// programFile makes a root with a program of this module, built for an architecture.
func programFile(ctx context.Context, w io.Writer, source, arch, name string) error {
	dir, err := os.MkdirTemp("", "sandboxagent-program-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	file := filepath.Join(dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file,
		"github.com/sandboxagent/sandboxagent/"+source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if err := run(build); err != nil {
		return err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return writeRoot(w, name, program)
}

// goroot makes a root with the Go that builds this program, where the image of the go command has
// it, less the data of Go's tests, which are a third of its files.
func goroot(ctx context.Context, _ string, w io.Writer) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find GOROOT: %w", err)
	}
	archive := exec.CommandContext(ctx, "tar", "--owner=0", "--group=0", "--numeric-owner",
		"--mode=u+w",
		"--exclude=./test", "--exclude=testdata", "--transform=s,^\\.,usr/local/go,S", "-C",
		strings.TrimSpace(string(out)), "-c", ".")
	archive.Stdout = w
	return run(archive)
}

// writeRoot writes a tar with a program and other files that have no content.
func writeRoot(w io.Writer, name string, program []byte, files ...tar.Header) error {
	archive := tar.NewWriter(w)
	if err := writeFile(archive, tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755},
		program); err != nil {
		return err
	}
	for _, f := range files {
		if err := writeFile(archive, f, nil); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeFile(w *tar.Writer, header tar.Header, data []byte) error {
	header.Size = int64(len(data))
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// run runs cmd; an error has the end of its output.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stderr = &out
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err,
			out.Bytes()[max(0, out.Len()-2048):])
	}
	return nil
}
