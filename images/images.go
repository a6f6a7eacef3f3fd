// Package images holds the product's images as sources: Dockerfiles that the Engine API's classic
// builder and BuildKit both understand. WriteContext writes the context of a build.
//
// Every image but the helper runs as the user 10001:10001 by default, whose home is /home/sandbox
// and who owns /workspace, and works with a read-only root if these two directories are writable.
// Such images carry PreparedLabel.
package images

import (
	"archive/tar"
	"embed"
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	// DefaultReference names the image that a sandbox has by default, once it is built.
	DefaultReference = "sandboxagent-base:latest"
	// PublicReference names the default image until then, and the base of it.
	PublicReference = "debian:bookworm-slim"
	// PreparedLabel is the label of images that have a user and a workspace for sandboxes; its value
	// is the user's and the group's number, as 10001:10001.
	PreparedLabel = "sandboxagent.prepared"
	// BaseArg is the build argument that replaces the image on which an image is built.
	BaseArg = "BASE"
)

// Image is one of the product's images.
type Image struct {
	// Name is short: base, go, node, python, helper, cli, agent.
	Name string
	// Reference is the name and tag under which the image is built and looked for by default.
	Reference string
	// Description is one line for people.
	Description string
	// Base is the reference of the image on which this one is built by default; empty if it is built
	// on none, so that BaseArg has no effect.
	Base string
	// From are references of images from which files are copied.
	From []string
	// Programs are the files that the caller of WriteContext passes: static programs for the image's
	// platform.
	Programs []string
}

// List returns all images, each after the one on which it is built. The caller owns the result.
func List() []Image {
	return []Image{
		{
			Name: "base", Reference: DefaultReference, Base: PublicReference,
			Description: "Debian with git, ripgrep and certificates; the default",
		},
		{
			Name: "go", Reference: "sandboxagent-go:latest", Base: DefaultReference,
			From:        []string{"golang:1.26-bookworm"},
			Description: "base with Go 1.26 and a C compiler",
		},
		{
			Name: "node", Reference: "sandboxagent-node:latest", Base: DefaultReference,
			Description: "base with Node.js and npm",
		},
		{
			Name: "python", Reference: "sandboxagent-python:latest", Base: DefaultReference,
			Description: "base with Python 3, pip and venv",
		},
		{
			Name: "helper", Reference: "sandboxagent-helper:latest", Programs: []string{"sandboxd"},
			Description: "the program that runs inside sandboxes, and nothing else",
		},
		{
			Name: "cli", Reference: "sandboxagent-cli:latest", Base: DefaultReference,
			Programs:    []string{"sandboxagent"},
			Description: "base with the command line, for continuous integration",
		},
		{
			Name: "agent", Reference: "sandboxagent-agent:latest", Base: DefaultReference,
			Programs:    []string{"sandboxagent"},
			Description: "the command line and certificates, for the agents of batches in a cluster",
		},
	}
}

// Find returns the image with a name.
func Find(name string) (Image, bool) {
	list := List()
	if i := slices.IndexFunc(list, func(i Image) bool { return i.Name == name }); i >= 0 {
		return list[i], true
	}
	return Image{}, false
}

//go:embed */Dockerfile
var dockerfiles embed.FS

// Dockerfile returns the source of the image with a name.
func Dockerfile(name string) ([]byte, error) {
	if _, ok := Find(name); !ok {
		return nil, fmt.Errorf("images: unknown image %q", name)
	}
	return dockerfiles.ReadFile(name + "/Dockerfile")
}

// WriteContext writes to w the build context of the image with a name: an uncompressed tar with the
// Dockerfile and the image's programs at its root. programs has the content of each file that
// Image.Programs names, and may have others, which are left out. Equal input gives equal bytes.
func WriteContext(w io.Writer, name string, programs map[string][]byte) error {
	image, ok := Find(name)
	if !ok {
		return fmt.Errorf("images: unknown image %q", name)
	}
	source, err := Dockerfile(name)
	if err != nil {
		return err
	}
	for _, program := range image.Programs {
		if len(programs[program]) == 0 {
			return fmt.Errorf("images: the image %s needs the program %s", name, program)
		}
	}
	archive := tar.NewWriter(w)
	if err := writeFile(archive, "Dockerfile", 0o644, source); err != nil {
		return fmt.Errorf("images: write the context of %s: %w", name, err)
	}
	for _, program := range image.Programs {
		if err := writeFile(archive, program, 0o755, programs[program]); err != nil {
			return fmt.Errorf("images: write the context of %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("images: write the context of %s: %w", name, err)
	}
	return nil
}

func writeFile(archive *tar.Writer, name string, mode int64, data []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)),
		ModTime: time.Unix(0, 0),
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}
