package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/sandboxagent/sandboxagent/images"
)

const (
	// preparedName is the name of images that were prepared; the tag says of what and for whom.
	preparedName = namePrefix + "prepared"
	kindPrepared = "prepared"
)

// isPrepared reports whether volumes will belong to the user of the container: a new one takes over the owner of the
// folder that it hides.
func (c Config) isPrepared(found image.InspectResponse) bool {
	return c.WorkDir == DefaultWorkDir && found.Config != nil && found.Config.Labels[images.PreparedLabel] == c.User
}

// prepare returns an image with a home folder and a working folder that belong to the user: the given one, or a layer on
// top of it with these two folders, which is made once and kept.
func (e *Engine) prepare(ctx context.Context, c Config, found image.InspectResponse) (id string, err error) {
	if c.isPrepared(found) {
		return found.ID, nil
	}
	if found.Config != nil {
		for dir := range found.Config.Volumes {
			if within(c.WorkDir, dir) || within(c.home(), dir) {
				return "", fmt.Errorf("the image declares %s a volume, so that it cannot be made to belong to the user; use an image without that VOLUME", dir)
			}
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{found.ID, c.WorkDir, c.home(), c.User}))
	ref := preparedName + ":" + hex.EncodeToString(sum[:16])
	known, err := e.findImage(ctx, ref)
	if err == nil {
		return known.ID, nil
	}
	if !errdefs.IsNotFound(err) {
		return "", e.explain(ctx, err)
	}
	made, err := e.share(ctx, ref, func() (any, error) {
		ctx, cancel := context.WithTimeout(e.life, c.StartTimeout)
		defer cancel()
		return e.makePrepared(ctx, c, found.ID, ref)
	})
	if err != nil {
		return "", fmt.Errorf("a layer with the folders %s and %s: %w", c.WorkDir, c.home(), e.explain(ctx, err))
	}
	id, _ = made.(string)
	return id, nil
}

// within reports whether a folder is dir or below it.
func within(folder, dir string) bool {
	dir = path.Clean(dir)
	return folder == dir || dir == "/" || strings.HasPrefix(folder, dir+"/")
}

// loaderLabels are those of a container that is never started.
func loaderLabels() map[string]string { return map[string]string{labelKind: kindLoader} }

// makePrepared makes the layer, by way of a container that is never started.
func (e *Engine) makePrepared(ctx context.Context, c Config, imageID, ref string) (id string, err error) {
	folders, err := c.folders()
	if err != nil {
		return "", err
	}
	name := namePrefix + c.Session + loaderSuffix
	_, err = e.api.ContainerCreate(ctx, &container.Config{
		Image: imageID, Labels: loaderLabels(), NetworkDisabled: true, Entrypoint: []string{"/none"},
	}, &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}}, nil, nil, name)
	if errdefs.IsConflict(err) {
		return "", err
	}
	defer func() {
		ctx, cancel := detached(ctx, cleanTime)
		defer cancel()
		err = errors.Join(err, e.remove(ctx, name))
	}()
	if err == nil {
		err = e.api.CopyToContainer(ctx, name, "/", bytes.NewReader(folders), container.CopyToContainerOptions{})
	}
	if err != nil {
		return "", err
	}
	made, err := e.api.ContainerCommit(ctx, name, container.CommitOptions{
		Reference: ref, Comment: "folders for a sandbox", Changes: []string{"LABEL " + labelKind + "=" + kindPrepared},
	})
	return made.ID, err
}

// folders returns the folders of the user as a tar stream.
func (c Config) folders() ([]byte, error) {
	uid, gid := c.ids()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []*tar.Header{{Name: c.WorkDir, Mode: 0o755}, {Name: c.home(), Mode: 0o700}} {
		dir.Name, dir.Typeflag, dir.Uid, dir.Gid, dir.ModTime = strings.Trim(dir.Name, "/")+"/", tar.TypeDir, uid, gid, time.Now()
		if err := w.WriteHeader(dir); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
