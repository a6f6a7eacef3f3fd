package main

import (
	"fmt"
	"strings"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
)

// containerFlags are the flags of backends that run an image.
func containerFlags() []cli.Flag {
	return []cli.Flag{
		networkFlag(),
		&cli.StringFlag{
			Name: "image", Category: groupContainer,
			DefaultText: "with docker the one that \"image build base\" builds, else debian:bookworm-slim",
			Usage:       "run `IMAGE`",
		},
		&cli.StringFlag{
			Name: "pull", Category: groupContainer, DefaultText: "missing",
			Usage: "pull the image `WHEN`: missing, always or never",
		},
		&cli.Float64Flag{
			Name: "cpus", Category: groupContainer, DefaultText: fmt.Sprint(docker.DefaultCPUs),
			Usage: "limit the container to this `NUMBER` of processors",
		},
		&cli.StringFlag{
			Name: "memory", Category: groupContainer,
			DefaultText: units.BytesSize(docker.DefaultMemory),
			Usage:       "limit the memory to `SIZE`, such as 4GiB",
		},
		&cli.StringFlag{
			Name: "user", Category: groupContainer, DefaultText: docker.DefaultUser,
			Usage: "run commands as `UID[:GID]`, with docker also as root",
		},
		&cli.StringSliceFlag{
			Name: "label", Category: groupContainer,
			Usage: "label the container or pod with `NAME=VALUE`; may be repeated",
		},
		uploadIgnoredFlag(),
	}
}

// checkCPUs rejects --cpus 0.
func checkCPUs(c *cli.Context) error {
	if c.IsSet("cpus") && c.Float64("cpus") == 0 {
		return usagef("--cpus is 0; leave it out for the default")
	}
	return nil
}

// parseLabels reads --label.
func parseLabels(c *cli.Context) map[string]string {
	labels := make(map[string]string)
	for _, text := range c.StringSlice("label") {
		name, value, _ := strings.Cut(text, "=")
		labels[name] = value
	}
	return labels
}

// parseSize reads a number of bytes; an empty text is 0.
func parseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := units.RAMInBytes(text)
	if err != nil || size <= 0 {
		return 0, usagef("--%s: %q is not a size such as 512MiB or 4GiB", flag, text)
	}
	return size, nil
}

// sizeText returns a number of bytes as flags take it.
func sizeText(size int64) string { return units.BytesSize(float64(size)) }
