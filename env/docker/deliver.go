package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

const (
	// programName is the name of the helper in its volume, and programPath its path.
	programName = "sandboxd"
	programPath = programDir + "/" + programName
	// programMode permits execution but no reading: the kernel protects a process of an unreadable
	// program from other processes of the same user from its start.
	programMode = 0o111
)

// volumeName returns the name of the volume for a helper. Programs for different processors have
// different digests.
func volumeName(p *remote.Program) string { return namePrefix + "helper-" + p.Digest[:32] }

// ensureProgram creates and fills the volume of the program if it is missing, once for concurrent
// callers. Image is any image on the daemon. With anew it fills an existing volume too.
func (e *Engine) ensureProgram(
	ctx context.Context, c Config, p *remote.Program, image string, anew bool,
) error {
	name := volumeName(p)
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

// load fills the volume of a program. The program gets its name once it is complete, also when
// other clients load it at the same time.
func (e *Engine) load(ctx context.Context, c Config, p *remote.Program, image string) (err error) {
	name := volumeName(p)
	defer func() {
		if err != nil {
			err = fmt.Errorf("volume %s: %w", name, err)
		}
	}()
	archive, size, err := programArchive(p, c.Session)
	if err != nil {
		return err
	}
	if _, err := e.api.VolumeCreate(ctx, volume.CreateOptions{
		Name: name, Labels: map[string]string{labelKind: kindHelper},
	}); err != nil {
		return err
	}
	at := mount.Mount{
		Type: mount.TypeVolume, Source: name, Target: programDir,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
	err = e.withLoader(ctx, c, image, []mount.Mount{at}, func(loader string) error {
		complete := func() bool {
			found, err := e.api.ContainerStatPath(ctx, loader, programPath)
			return err == nil && found.Size == size && found.Mode.Perm() == programMode
		}
		if complete() {
			return nil // another client was faster
		}
		err := e.api.CopyToContainer(ctx, loader, programDir, bytes.NewReader(archive),
			container.CopyToContainerOptions{})
		if err != nil && complete() { // another client has created the name meanwhile
			err = nil
		}
		return err
	})
	if err != nil && !errdefs.IsConflict(err) {
		cleanup, cancel := detached(ctx, cleanupTimeout)
		defer cancel()
		_ = e.api.VolumeRemove(cleanup, name, false) // fails if another container uses it
	}
	return err
}

// withLoader calls fill with the name of a container that is never started, and removes it. If the
// name is taken, errdefs.IsConflict reports true for the error.
func (e *Engine) withLoader(
	ctx context.Context, c Config, image string, mounts []mount.Mount, fill func(loader string) error,
) (err error) {
	name := namePrefix + c.Session + loaderSuffix
	_, err = e.api.ContainerCreate(ctx, &container.Config{
		// More labels would become labels of a committed image.
		Image: image, Labels: map[string]string{labelKind: kindLoader}, NetworkDisabled: true,
		Entrypoint: []string{"/none"},
	}, &container.HostConfig{
		NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}, Mounts: mounts,
	}, nil, nil, name)
	if errdefs.IsConflict(err) {
		return err
	}
	defer func() {
		ctx, cancel := detached(ctx, cleanupTimeout)
		defer cancel()
		err = errors.Join(err, e.remove(ctx, name))
	}()
	if err != nil {
		return err
	}
	return fill(name)
}

// programArchive returns a program as a tar stream that creates its name last, and its size. The
// session makes the temporary name unique.
func programArchive(p *remote.Program, session string) (archive []byte, size int64, err error) {
	content, err := p.Content()
	if err != nil {
		return nil, 0, err
	}
	var b bytes.Buffer
	w, part := tar.NewWriter(&b), programName+"."+session
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: part, Mode: programMode, Size: int64(len(content)),
	})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeLink, Name: programName, Linkname: part, Mode: programMode,
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
	return fmt.Errorf("remove the container %s: %w", name, e.explain(ctx, err))
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
