package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

const (
	// programName is the name of the helper in its volume.
	programName = "sandboxd"
	// programMode permits execution but no reading: the kernel protects a process of an unreadable
	// program from other processes of the same user from its start.
	programMode = 0o111
	// maxProgram bounds the size of a helper, in bytes.
	maxProgram = 128 << 20
)

// program is a helper for delivery.
type program struct {
	digest string
	args   []string
	open   func() (io.ReadCloser, error)
}

// volume returns the name of the volume for the program. Programs for different processors have
// different digests.
func (p *program) volume() string { return namePrefix + "helper-" + p.digest[:32] }

// file caches the digest of a file.
type file struct {
	digest  string
	size    int64
	changed time.Time
}

// program returns the helper for the processor arch. Without one the error is a
// *helper.MissingError.
func (e *Engine) program(c Config, arch string) (*program, error) {
	path := c.HelperProgram.Path
	if path == "" || c.HelperProgram.IfMissing {
		h, err := helper.Find("linux", arch)
		switch {
		case err == nil:
			return &program{digest: h.Digest(), open: h.Open}, nil
		case path == "" || !isStatic(path, arch):
			return nil, err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !isStatic(path, arch) {
		return nil, fmt.Errorf("%s is not a static program for linux/%s", path, arch)
	}
	e.mu.Lock()
	known, ok := e.digests[path]
	e.mu.Unlock()
	if !ok || !known.changed.Equal(info.ModTime()) || known.size != info.Size() {
		known = file{size: info.Size(), changed: info.ModTime()}
		if known.digest, err = helper.Digest(path); err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.digests[path] = known
		e.mu.Unlock()
	}
	return &program{
		digest: known.digest, args: c.HelperProgram.Args,
		open: func() (io.ReadCloser, error) { return os.Open(path) },
	}, nil
}

// HelperFor returns the embedded helper for the processor of the daemon's machine.
func (e *Engine) HelperFor(ctx context.Context) ([]byte, error) {
	arch, err := e.arch(ctx)
	if err != nil {
		return nil, err
	}
	h, err := helper.Find("linux", arch)
	if err != nil {
		return nil, err
	}
	r, err := h.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// IsProgram reports whether a file is a static Linux program for the processor of the daemon's
// machine.
func (e *Engine) IsProgram(ctx context.Context, path string) (bool, error) {
	arch, err := e.arch(ctx)
	return err == nil && isStatic(path, arch), err
}

// isStatic reports whether a file is a static Linux program for a processor.
func isStatic(path, arch string) bool {
	of, err := helper.Arch(path)
	return err == nil && of == arch
}

// ensureProgram creates and fills the volume of the program if it is missing, once for concurrent
// callers. Image is any image on the daemon. With anew it fills an existing volume too.
func (e *Engine) ensureProgram(
	ctx context.Context, c Config, p *program, image string, anew bool,
) error {
	name := p.volume()
	e.mu.Lock()
	known := e.volumes[name]
	e.mu.Unlock()
	if known && !anew {
		return nil
	}
	_, err := e.share(ctx, name, func() (any, error) {
		ctx, cancel := context.WithTimeout(e.life, c.StartTimeout)
		defer cancel()
		_, err := e.api.VolumeInspect(ctx, name)
		if errdefs.IsNotFound(err) || err == nil && anew {
			err = e.load(ctx, c, p, image)
		}
		if err == nil {
			e.mu.Lock()
			e.volumes[name] = true
			e.mu.Unlock()
		}
		return nil, err
	})
	return e.explain(ctx, err)
}

// load fills the volume of a program through a container that is never started. The program gets
// its name once it is complete, also when other clients load it at the same time.
func (e *Engine) load(ctx context.Context, c Config, p *program, image string) (err error) {
	archive, size, err := p.archive(c.Session)
	if err != nil {
		return err
	}
	name := p.volume()
	if _, err := e.api.VolumeCreate(ctx, volume.CreateOptions{
		Name:   name,
		Labels: map[string]string{labelKind: kindHelper},
	}); err != nil {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	loader := namePrefix + c.Session + loaderSuffix
	_, err = e.api.ContainerCreate(ctx, &container.Config{
		Image: image, Entrypoint: []string{"/none"}, Labels: loaderLabels(), NetworkDisabled: true,
	}, &container.HostConfig{
		NetworkMode: "none",
		LogConfig:   container.LogConfig{Type: "none"},
		Mounts: []mount.Mount{{
			Type: mount.TypeVolume, Source: name, Target: programDir,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		}},
	}, nil, nil, loader)
	if errdefs.IsConflict(err) {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	defer func() {
		ctx, cancel := detached(ctx, cleanupTimeout)
		defer cancel()
		failed := err != nil
		if err = errors.Join(err, e.remove(ctx, loader)); failed {
			_ = e.api.VolumeRemove(ctx, name, false) // fails if another container uses it
		}
	}()
	if err != nil {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	complete := func() bool {
		found, err := e.api.ContainerStatPath(ctx, loader, programDir+"/"+programName)
		return err == nil && found.Size == size && found.Mode.Perm() == programMode
	}
	if complete() {
		return nil // another client was faster
	}
	err = e.api.CopyToContainer(ctx, loader, programDir, bytes.NewReader(archive),
		container.CopyToContainerOptions{})
	if err != nil && !complete() { // another client may have created the name meanwhile
		return fmt.Errorf("volume %s: %w", name, err)
	}
	return nil
}

// archive returns the program as a tar stream that creates its name last, and its size. The session
// makes the temporary name unique.
func (p *program) archive(session string) (archive []byte, size int64, err error) {
	r, err := p.open()
	if err != nil {
		return nil, 0, err
	}
	content, err := io.ReadAll(io.LimitReader(r, maxProgram+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, 0, fmt.Errorf("helper: %w", err)
	}
	if len(content) > maxProgram {
		return nil, 0, fmt.Errorf("helper: more than %d bytes", maxProgram)
	}
	var b bytes.Buffer
	w, part := tar.NewWriter(&b), programName+"."+session
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: part, Mode: programMode,
		Size: int64(len(content)),
	})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeLink, Name: programName, Linkname: part,
			Mode: programMode,
		})
	}
	err = errors.Join(err, w.Close())
	return b.Bytes(), int64(len(content)), err
}

// remove removes a container, by name or ID, with its volumes. A missing one is no error.
func (e *Engine) remove(ctx context.Context, name string) error {
	err := e.call(ctx, func(ctx context.Context) error {
		return e.api.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err): // its removal is in progress
		return e.awaitRemoval(ctx, name)
	}
	return fmt.Errorf("remove the container %s: %w (\"sandboxagent env gc\" tries again)", name,
		e.explain(ctx, err))
}

// awaitRemoval waits until a container is removed.
func (e *Engine) awaitRemoval(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	removed, failed := e.api.ContainerWait(ctx, name, container.WaitConditionRemoved)
	select {
	case <-removed:
		return nil
	case err := <-failed:
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("wait for the removal of the container %s: %w", name, e.explain(ctx, err))
	}
}
