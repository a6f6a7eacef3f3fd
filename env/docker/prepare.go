package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
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
	return c.WorkDir == DefaultWorkDir && !c.OwnWorkDir && found.Config != nil &&
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
			if within(c.WorkDir, dir) || within(c.home(), dir) || c.OwnWorkDir && within(dir, c.WorkDir) {
				return "", fmt.Errorf("the image declares %s a volume, whose owner cannot be changed (use "+
					"an image without that VOLUME)", dir)
			}
		}
	}
	key := []string{found.ID, c.WorkDir, c.home(), c.User}
	if c.OwnWorkDir {
		key = append(key, "own")
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", key))
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
	err = e.withLoader(ctx, c, imageID, nil, func(loader string) error {
		gitConfig := ""
		if c.OwnWorkDir {
			err := e.own(ctx, c, loader)
			if err == nil {
				gitConfig, err = e.readFile(ctx, loader, c.gitConfig(), maxGitConfig)
			}
			if err != nil {
				return err
			}
		}
		archive, err := c.directories(gitConfig)
		if err != nil {
			return err
		}
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

// own copies the working directory of a container onto itself, with the user as the owner of all.
func (e *Engine) own(ctx context.Context, c Config, loader string) error {
	bad := func(format string, args ...any) error {
		return badConfig("working directory", format, args...)
	}
	found, stat, err := e.api.CopyFromContainer(ctx, loader, c.WorkDir)
	if errdefs.IsNotFound(err) {
		return bad("the image has no directory %s", c.WorkDir)
	}
	if err != nil {
		return err
	}
	defer found.Close() //nolint:errcheck // it was only read
	switch {
	case stat.LinkTarget != "":
		return bad("%s of the image is a symlink; name the directory %s", c.WorkDir, stat.LinkTarget)
	case !stat.Mode.IsDir():
		return bad("%s of the image is not a directory", c.WorkDir)
	}
	// The daemon holds a lock on the container until found is closed.
	spool, err := os.CreateTemp("", "sandboxagent-*.tar")
	if err != nil {
		return err
	}
	_ = os.Remove(spool.Name()) // fails on Windows while it is open
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}()
	err = errors.Join(c.changeOwner(spool, found), found.Close())
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return e.api.CopyToContainer(ctx, loader, path.Dir(c.WorkDir), spool,
		container.CopyToContainerOptions{})
}

// changeOwner copies a tar stream with the user as the owner of all entries.
func (c Config) changeOwner(w io.Writer, r io.Reader) error {
	uid, gid := c.ids()
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return out.Close()
		}
		if err != nil {
			return err
		}
		h.Uid, h.Gid, h.Uname, h.Gname = uid, gid, "", ""
		h.Format = tar.FormatPAX // which has no limit for IDs
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}

// directories returns the directories of the user as a tar stream. With Config.OwnWorkDir the image
// has one of them, and git's configuration, which starts with that of the image, is added.
func (c Config) directories(gitConfig string) ([]byte, error) {
	uid, gid := c.ids()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(kind byte, name string, mode int64, content string) error {
		err := w.WriteHeader(&tar.Header{
			Typeflag: kind, Name: strings.Trim(name, "/"), Mode: mode, Size: int64(len(content)),
			Uid: uid, Gid: gid, ModTime: time.Now(),
		})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		return err
	}
	err := add(tar.TypeDir, c.home(), 0o700, "")
	if c.OwnWorkDir {
		file := c.gitConfig()
		dir := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.WorkDir)
		err = errors.Join(err, add(tar.TypeDir, path.Dir(path.Dir(file)), 0o700, ""),
			add(tar.TypeDir, path.Dir(file), 0o700, ""),
			add(tar.TypeReg, file, 0o600, gitConfig+"\n[safe]\n\tdirectory = \""+dir+"\"\n"))
	} else {
		err = errors.Join(err, add(tar.TypeDir, c.WorkDir, 0o755, ""))
	}
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// gitConfig is one of git's two files with the settings of the user.
func (c Config) gitConfig() string { return c.home() + "/.config/git/config" }

// maxGitConfig bounds a file with settings of git, in bytes.
const maxGitConfig = 1 << 20

// readFile returns the content of a regular file of a container; empty without one.
func (e *Engine) readFile(
	ctx context.Context, loader, name string, limit int64,
) (string, error) {
	r, stat, err := e.api.CopyFromContainer(ctx, loader, name)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // it was only read
	if !stat.Mode.IsRegular() || stat.Size > limit {
		return "", fmt.Errorf("%s is not a regular file of at most %d bytes", name, limit)
	}
	archive := tar.NewReader(r)
	if _, err := archive.Next(); err != nil {
		return "", err
	}
	content, err := io.ReadAll(archive)
	return string(content), err
}
