package helper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const (
	modulePath = "github.com/sandboxagent/sandboxagent"
	// buildTimeout bounds the download of the source and the build together.
	buildTimeout = 5 * time.Minute
)

// Build returns the helper for a platform, built by the Go toolchain from the source of this module
// into the directory sandboxagent in cache, or in the user's cache directory if cache is empty. It
// takes up to 5 minutes, less with an earlier end of ctx.
func Build(ctx context.Context, cache, goos, goarch string) (*Program, error) {
	path, err := thisModule(cache).build(ctx, goos, goarch)
	if err != nil {
		return nil, err
	}
	return File(path, goos, goarch)
}

// errNoSource reports that neither a directory nor a version of the source is known.
var errNoSource = errors.New(
	"the source of this program is neither on this machine nor a published version")

// module is the source of this module.
type module struct {
	dir     string // as compiled in; empty with -trimpath
	version string // empty for one that was never published
	cache   string
}

// thisModule returns the module that this process was built from. The working directory never
// counts: it may belong to a repository that names another source for this module.
func thisModule(cache string) module {
	m := module{cache: cache}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		m.dir = filepath.Join(filepath.Dir(file), "../../..")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range append(info.Deps, &info.Main) {
			if dep.Path == modulePath && dep.Replace == nil && published(dep.Version) {
				m.version = dep.Version
			}
		}
	}
	return m
}

// published reports whether a version may be had from a module proxy.
func published(version string) bool {
	return strings.HasPrefix(version, "v") && !strings.Contains(version, "+dirty")
}

// build returns the file of a helper in the cache. It builds a version that is in the module cache,
// or is downloaded, once, and the source in any other directory each time, which the Go toolchain
// shortens by its own cache.
func (m module) build(ctx context.Context, goos, goarch string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	cache, err := cacheDir(m.cache)
	if err != nil {
		return "", err
	}
	dir, version := m.dir, m.version
	if !isSource(dir) {
		dir = ""
	} else if !strings.HasSuffix(dir, "@"+version) {
		version = "" // the source may change, unlike that in the module cache
	}
	if dir == "" && version == "" {
		return "", errNoSource
	}
	name := filepath.Join(cache, prefix+goos+"-"+goarch+"-"+cmp.Or(version, "devel"))
	if version != "" {
		if f, err := openOwned(name); err == nil {
			return name, f.Close()
		}
		if dir == "" {
			if dir, err = download(ctx, goCommand, cache, version); err != nil {
				return "", err
			}
		}
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, prefix+"build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // removeUnused removes it later
	out := filepath.Join(tmp, "sandboxd")
	cmd := exec.CommandContext(ctx, goCommand, "build", "-C", dir, "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid=", "-o", out, "./cmd/sandboxd")
	cmd.Env = goEnv("CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if err := run(ctx, cmd, nil); err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(out, 0o700), os.Rename(out, name)); err != nil {
		return "", err
	}
	removeUnused(cache, name)
	return name, nil
}

// isSource reports whether a directory holds this module, and nobody but this user and root can
// write to it.
func isSource(dir string) bool {
	if dir == "" {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil || !trusted(info) {
		return false
	}
	f, err := os.Open(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it was only read
	first := make([]byte, len("module "+modulePath+"\n"))
	_, err = io.ReadFull(f, first)
	return err == nil && string(first) == "module "+modulePath+"\n"
}

// download returns the directory of a published version in the module cache.
func download(ctx context.Context, goCommand, dir, version string) (string, error) {
	cmd := exec.CommandContext(ctx, goCommand, "mod", "download", "-json", modulePath+"@"+version)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	cmd.Dir = dir // outside of any module of the caller
	cmd.Env = goEnv()
	var stdout strings.Builder
	runErr := run(ctx, cmd, &stdout)
	var result struct{ Dir, Error string }
	switch err := json.Unmarshal([]byte(stdout.String()), &result); {
	case result.Error != "":
		return "", fmt.Errorf("go mod download: %s", result.Error)
	case runErr != nil:
		return "", runErr
	case err != nil:
		return "", fmt.Errorf("go mod download: %w", err)
	case result.Dir == "":
		return "", fmt.Errorf("go mod download: %w", fs.ErrNotExist)
	}
	return result.Dir, nil
}

// goEnv returns the variables of a go command: this process's without those that change which
// source is built.
func goEnv(vars ...string) []string {
	return append(append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GO111MODULE=on"), vars...)
}

// run runs a go command. Its error has the end of stderr.
func run(ctx context.Context, cmd *exec.Cmd, stdout io.Writer) error {
	var stderr StderrTail
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, &stderr, time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("go %s: %w: %s", cmd.Args[1], err, stderr.String())
}
