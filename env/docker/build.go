package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
)

// BuildOptions say how an image is built.
type BuildOptions struct {
	// Reference is what the image is called.
	Reference string
	// Args are build arguments.
	Args map[string]string
	// Network is what commands of the build reach: empty means the daemon's default, "host" its machine's own network.
	Network string
	// Progress, if set, gets what the build says, line by line.
	Progress func(line string)
}

// Build builds an image from a tar stream with a Dockerfile at its root, which its classic builder understands. Base images
// are fetched where the daemon does not have them.
func (e *Engine) Build(ctx context.Context, source io.Reader, o BuildOptions) error {
	args := make(map[string]*string, len(o.Args))
	for name, value := range o.Args {
		args[name] = &value
	}
	answer, err := e.api.ImageBuild(ctx, source, build.ImageBuildOptions{
		Tags: []string{o.Reference}, BuildArgs: args, NetworkMode: o.Network, Remove: true, ForceRemove: true, Version: build.BuilderV1,
	})
	if err == nil {
		err = errors.Join(followStream(answer.Body, o.Progress), answer.Body.Close())
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("docker: build %s: %w", o.Reference, e.explain(ctx, err))
	}
	return err
}

// ImageInfo is what a daemon knows of an image.
type ImageInfo struct {
	ID      string
	Created time.Time
	// Size in bytes, with what it shares with others.
	Size int64
}

// FindImage returns what the daemon knows of an image. If it does not have it, the error is an *ImageError.
func (e *Engine) FindImage(ctx context.Context, ref string) (ImageInfo, error) {
	found, err := e.findImage(ctx, ref)
	switch {
	case errdefs.IsNotFound(err):
		return ImageInfo{}, &ImageError{Reference: ref, Problem: ImageMissing, Hint: "the daemon does not have it"}
	case err != nil:
		return ImageInfo{}, fmt.Errorf("docker: image %s: %w", ref, e.explain(ctx, err))
	}
	created, _ := time.Parse(time.RFC3339Nano, found.Created) // an image without one was made at no time
	return ImageInfo{ID: found.ID, Created: created, Size: found.Size}, nil
}
