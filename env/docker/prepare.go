package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// preparedName is the name of prepared images; the tag is a digest of image, directories and user.
	preparedName = namePrefix + "prepared"
	kindPrepared = "prepared"
)

// isPrepared reports whether new volumes will belong to the container's user: a volume inherits the
// owner of the directory that it covers.
func (c Config) isPrepared(found image.InspectResponse) bool {
	return c.WorkDir == DefaultWorkDir && found.Config != nil &&
		found.Config.Labels[images.PreparedLabel] == c.User
}

// prepare returns an image whose home and working directory belong to the user: the given one, or
// one with these two directories in a layer on top of it, which is created once and kept.
func (e *Engine) prepare(
	ctx context.Context, c Config, found image.InspectResponse,
) (id string, err error) {
	if c.isPrepared(found) {
		return found.ID, nil
	}
	if found.Config != nil {
		for dir := range found.Config.Volumes {
			if within(c.WorkDir, dir) || within(c.home(), dir) {
				return "", fmt.Errorf("the image declares %s a volume, whose owner cannot be changed (use "+
					"an image without that VOLUME)", dir)
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
		return "", fmt.Errorf("create a layer with the directories %s and %s: %w",
			c.WorkDir, c.home(), e.explain(ctx, err))
	}
	id, _ = made.(string)
	return id, nil
}

// within reports whether name is dir or below it.
func within(name, dir string) bool {
	dir = path.Clean(dir)
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// makePrepared commits the layer from a container that is never started.
func (e *Engine) makePrepared(
	ctx context.Context, c Config, imageID, ref string,
) (id string, err error) {
	archive, err := c.directories()
	if err != nil {
		return "", err
	}
	err = e.withLoader(ctx, c, imageID, nil, func(loader string) error {
		if err := e.api.CopyToContainer(ctx, loader, "/", bytes.NewReader(archive),
			container.CopyToContainerOptions{}); err != nil {
			return err
		}
		made, err := e.api.ContainerCommit(ctx, loader, container.CommitOptions{
			Reference: ref, Comment: "directories of a sandbox",
			Changes: []string{"LABEL " + labelKind + "=" + kindPrepared},
		})
		id = made.ID
		return err
	})
	return id, err
}

// directories returns the directories of the user as a tar stream.
func (c Config) directories() ([]byte, error) {
	uid, gid := c.ids()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []*tar.Header{{Name: c.WorkDir, Mode: 0o755}, {Name: c.home(), Mode: 0o700}} {
		dir.Name, dir.Typeflag = strings.Trim(dir.Name, "/")+"/", tar.TypeDir
		dir.Uid, dir.Gid, dir.ModTime = uid, gid, time.Now()
		if err := w.WriteHeader(dir); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
