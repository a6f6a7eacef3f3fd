package k8s

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// architectures maps the kernel's names of processors to those of the Go toolchain.
var architectures = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "loongarch64": "loong64",
}

// program returns the arguments of the helper, which the pod needs before its platform is known.
func (c Config) program(ctx context.Context) *remote.Program {
	if c.HelperImage != "" {
		return &remote.Program{}
	}
	available := c.Helper
	available.NoBuild = true
	for _, arch := range []string{"amd64", "arm64"} {
		if p, err := available.Resolve(ctx, "linux", arch); err == nil {
			return &remote.Program{Args: p.Args}
		}
	}
	return &remote.Program{}
}

// deliver sends the helper for the platform of the node to the container that installs it.
func (h *handle) deliver(ctx context.Context, from remote.Helper) error {
	return h.try(ctx, isInstalling, isInstalled, func() error {
		s, err := h.cluster.exec(ctx, h.name, installName, []string{
			"sh", "-c", deliverScript, "sh", installDir(helperPath),
		})
		if err != nil {
			return fmt.Errorf("connect to the container %s: %w", installName, err)
		}
		defer s.Close() //nolint:errcheck // never fails
		defer context.AfterFunc(ctx, func() { _ = s.Close() })()
		err = h.send(ctx, s, from)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("deliver the helper: %w", s.failure(err))
		if s.exited(127) {
			err = fmt.Errorf("%w; %w", err, ErrNoShell)
		}
		return err
	})
}

// send sends the helper to deliverScript.
func (h *handle) send(ctx context.Context, s *stream, from remote.Helper) error {
	lines := bufio.NewReader(io.LimitReader(s, 256))
	line, err := lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the platform of the node: %w", err)
	}
	system, processor, _ := strings.Cut(strings.TrimSpace(line), " ")
	arch, ok := architectures[processor]
	if !ok {
		arch = processor
	}
	p, err := from.Resolve(ctx, strings.ToLower(system), arch)
	if err != nil {
		return &ConfigError{Backend: backend, Field: "helper", Reason: err.Error(), Err: err}
	}
	if !slices.Equal(p.Args, h.program.Args) {
		return badConfig("helper", "the one for %s takes other arguments, %q; name an image with the "+
			"helper instead", arch, p.Args)
	}
	content, err := p.Content()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s, "%d\n", len(content)); err != nil {
		return err
	}
	if _, err := s.Write(content); err != nil {
		return err
	}
	if line, err = lines.ReadString('\n'); err != nil || line != "installed\n" {
		return fmt.Errorf("install it: %q, %w", line, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	select { // the script ends the container, and with it itself
	case <-s.ended:
	case <-time.After(exitTimeout):
	}
	return nil
}
