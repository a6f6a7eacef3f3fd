package daemons

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"

	"github.com/sandboxagent/sandboxagent/images"
)

// product returns the product's image with a reference.
func product(reference string) (images.Image, bool) {
	for _, image := range images.List() {
		if image.Reference == reference && len(image.Programs) == 0 {
			return image, true
		}
	}
	return images.Image{}, false
}

// loadProduct loads one of the product's images. An image that the cache does not have from the
// same source is built, with the host's network, on the images that its Dockerfile names.
func (d *Docker) loadProduct(ctx context.Context, cache string, image images.Image) error {
	source, err := images.Dockerfile(image.Name)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("product-%s-%s-%x.tar", image.Name, runtime.GOARCH, sha256.Sum256(source))
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := cached(cache, key, w, func(f *os.File) error {
			if err := d.Load(ctx, append([]string{image.Base}, image.From...)...); err != nil {
				return err
			}
			if err := d.build(ctx, image); err != nil {
				return err
			}
			saved, err := call(ctx, d.client, http.MethodGet, "/images/get",
				url.Values{"names": {image.Reference}}, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(f, saved)
			return errors.Join(err, saved.Close())
		})
		w.CloseWithError(err)
		made <- err
	}()
	return d.feed(ctx, "/images/load", nil, r, made)
}

func (d *Docker) build(ctx context.Context, image images.Image) error {
	var tar bytes.Buffer
	if err := images.WriteContext(&tar, image.Name, nil); err != nil {
		return err
	}
	query := url.Values{
		"t": {image.Reference}, "networkmode": {"host"}, "forcerm": {"1"},
		"version": {"1"},
	}
	return stream(ctx, d.client, "/build", query, &tar)
}

// feed sends the daemon the data written to the other end of r; made then gets the writer's error.
func (d *Docker) feed(
	ctx context.Context, path string, query url.Values, r *io.PipeReader, made <-chan error,
) error {
	err := stream(ctx, d.client, path, query, r)
	_ = r.Close() // ends the writer if the daemon did not read to the end
	if failed := <-made; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}
