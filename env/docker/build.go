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

// BuildOptions configure Build.
type BuildOptions struct {
	// Reference is the name of the image.
	Reference string
	// Args are build arguments.
	Args map[string]string
	// Network is the network of build commands; the default is the daemon's, and "host" is that of its
	// machine.
	Network string
	// Progress, if set, gets the output of the build, line by line.
	Progress func(line string)
}

// Build builds an image from a tar stream with a Dockerfile for the classic builder at its root. It
// pulls missing base images.
func (e *Engine) Build(ctx context.Context, source io.Reader, o BuildOptions) error {
	args := make(map[string]*string, len(o.Args))
	for name, value := range o.Args {
		args[name] = &value
	}
	answer, err := e.api.ImageBuild(ctx, source, build.ImageBuildOptions{
		Tags: []string{o.Reference}, BuildArgs: args, NetworkMode: o.Network, Remove: true,
		ForceRemove: true, Version: build.BuilderV1,
	})
	if err == nil {
		err = errors.Join(readProgress(answer.Body, o.Progress), answer.Body.Close())
	}
	if err != nil {
		return fmt.Errorf("docker: build %s: %w", o.Reference, e.explain(ctx, err))
	}
	return nil
}

// ImageInfo describes an image on a daemon.
type ImageInfo struct {
	ID      string
	Created time.Time
	// Size in bytes, with shared layers.
	Size int64
}

// FindImage returns an image on the daemon. If the daemon lacks it, the error is an *ImageError.
func (e *Engine) FindImage(ctx context.Context, ref string) (ImageInfo, error) {
	found, err := e.findImage(ctx, ref)
	switch {
	case errdefs.IsNotFound(err):
		const hint = "the daemon does not have it"
		return ImageInfo{}, &ImageError{Reference: ref, Problem: ImageMissing, Hint: hint}
	case err != nil:
		return ImageInfo{}, fmt.Errorf("docker: image %s: %w", ref, e.explain(ctx, err))
	}
	created, _ := time.Parse(time.RFC3339Nano, found.Created) // optional
	return ImageInfo{ID: found.ID, Created: created, Size: found.Size}, nil
}
