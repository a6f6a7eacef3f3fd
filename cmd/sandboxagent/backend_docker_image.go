package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/images"
)

func (p *program) imagesCommand() *cli.Command {
	return &cli.Command{
		Usage:     "list the images that can be built, and whether the daemon has them",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent image list
DOCKER_HOST=ssh://server sandboxagent image list`,
		Description: "Each line has the name, the reference, the size or a dash, and the content of " +
			"the image.",
		Action: p.action(p.listImages),
	}
}

func (p *program) buildCommand() *cli.Command {
	return &cli.Command{
		Usage:     "build images for sandboxes: " + strings.Join(imageNames(), ", "),
		ArgsUsage: "[flags] NAME...",
		UsageText: `
sandboxagent image build base
sandboxagent image build --build-network host go`,
		Description: `
Writes the output of the build to standard error, and the references of the built images to
standard output. Builds a missing base image of this list first.`,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "base", Category: groupDocker,
				Usage: "build on the image `REF` instead of the default base",
			},
			&cli.StringFlag{
				Name: "build-network", Category: groupDocker, DefaultText: "that of the daemon",
				Usage: "connect the commands of the build to `NETWORK`, such as host",
			},
		},
		Action: p.action(p.buildImages),
	}
}

func imageNames() []string {
	var names []string
	for _, i := range images.List() {
		names = append(names, i.Name)
	}
	return names
}

// listImages is the command image list.
func (p *program) listImages(ctx context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	return codeDone, withDocker(ctx, func(e *docker.Engine) error {
		table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "NAME\tREFERENCE\tSIZE\tDESCRIPTION") // Flush returns the error
		for _, i := range images.List() {
			size := "-"
			found, err := e.FindImage(ctx, i.Reference)
			var missing *docker.ImageError
			switch {
			case err == nil:
				size = units.HumanSize(float64(found.Size))
			case !errors.As(err, &missing):
				return err
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", i.Name, i.Reference, size, i.Description)
		}
		return table.Flush()
	})
}

// buildImages is the command image build.
func (p *program) buildImages(ctx context.Context, c *cli.Context) (int, error) {
	if c.NArg() == 0 {
		return 0, usagef("the image is missing (known: %s)", strings.Join(imageNames(), ", "))
	}
	var wanted []images.Image
	for _, name := range c.Args().Slice() {
		i, ok := images.Find(name)
		if !ok {
			return 0, usagef("unknown image %q (known: %s)", name, strings.Join(imageNames(), ", "))
		}
		if i.Base == "" && c.IsSet("base") {
			return 0, usagef("--base: the image %s has no base", name)
		}
		wanted = append(wanted, i)
	}
	b := &builder{program: p, base: c.String("base"), network: c.String("build-network")}
	return codeDone, withDocker(ctx, func(e *docker.Engine) error {
		b.engine = e
		for _, i := range wanted {
			if err := b.build(ctx, i); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(p.std.out, i.Reference); err != nil {
				return err
			}
		}
		return nil
	})
}

// builder builds images.
type builder struct {
	program       *program
	engine        *docker.Engine
	base, network string
}

// build builds an image, after its base if that is one of this project and missing.
func (b *builder) build(ctx context.Context, i images.Image) error {
	for _, other := range images.List() {
		if other.Reference != i.Base || b.base != "" {
			continue
		}
		_, err := b.engine.FindImage(ctx, other.Reference)
		var missing *docker.ImageError
		if errors.As(err, &missing) {
			err = b.build(ctx, other)
		}
		if err != nil {
			return err
		}
	}
	programs := make(map[string][]byte)
	for _, name := range i.Programs {
		data, err := b.imageProgram(ctx, name)
		if err != nil {
			return err
		}
		programs[name] = data
	}
	args := make(map[string]string)
	if b.base != "" && i.Base != "" {
		args[images.BaseArg] = b.base
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(images.WriteContext(pw, i.Name, programs)) }()
	defer pr.Close() //nolint:errcheck // it ends the writer
	return b.engine.Build(ctx, pr, docker.BuildOptions{
		Reference: i.Reference, Args: args, Network: b.network,
		// a failure to show progress does not fail the build
		Progress: func(line string) { _, _ = fmt.Fprintln(b.program.std.err, line) },
	})
}

// imageProgram returns the program that an image contains.
func (b *builder) imageProgram(ctx context.Context, name string) ([]byte, error) {
	arch, err := b.engine.Arch(ctx)
	if err != nil {
		return nil, err
	}
	h := sandboxd.Self() // which serves as the helper by its name
	if name != helperName {
		h = remote.Helper{Binary: cmp.Or(h.Program, os.Args[0])}
	}
	p, err := h.Resolve(ctx, "linux", arch)
	switch {
	case err != nil && h.Binary != "":
		return nil, errors.New("this program is not static, or not for the platform of the daemon " +
			"(run \"make build\" on Linux)")
	case err != nil:
		return nil, err
	}
	return p.Content()
}
