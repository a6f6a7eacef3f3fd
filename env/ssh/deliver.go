package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/pkg/sftp"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

const (
	// sftpTime bounds the start of the SFTP subsystem. One behind a login that prints something
	// never answers.
	sftpTime = 10 * time.Second
	// sftpParallel is the number of concurrent writes.
	sftpParallel = 64
)

// program is a helper that can be delivered.
type program struct {
	name, digest string
	open         func() (io.ReadCloser, error)
}

// programs are the available helpers, by the architecture as the Go toolchain names it.
type programs struct {
	byArch map[string]program
	args   []string
}

// architectures are those for which a helper may exist.
var architectures = []string{"amd64", "arm64"}

// findPrograms returns the available helpers. It is no error if none is: it depends on the host.
func findPrograms(p HelperProgram) (*programs, error) {
	all := &programs{byArch: make(map[string]program)}
	if p.Path == "" || p.IfMissing {
		for _, arch := range architectures {
			h, err := helper.Find("linux", arch)
			var missing *helper.MissingError
			switch {
			case errors.As(err, &missing):
			case err != nil:
				return nil, fmt.Errorf("ssh: %w", err)
			default:
				all.byArch[arch] = program{h.Name(), h.Digest(), h.Open}
			}
		}
		if p.Path == "" || len(all.byArch) > 0 {
			return all, nil
		}
	}
	arch, err := helper.Arch(p.Path)
	if err == nil && !slices.Contains(architectures, arch) {
		err = fmt.Errorf("%s is for %s, not for amd64 or arm64", p.Path, arch)
	}
	if err != nil && p.IfMissing {
		return all, nil
	}
	var digest string
	if err == nil {
		digest, err = helper.Digest(p.Path)
	}
	if err != nil {
		return nil, badConfig("helper program", "%v", err)
	}
	all.args = p.Args
	all.byArch[arch] = program{
		"sandboxd-linux-" + arch + "-" + digest, digest, func() (io.ReadCloser,
			error,
		) {
			return os.Open(p.Path)
		},
	}
	return all, nil
}

// deliver writes a helper into the file target of the host: by SFTP, or else through a shell.
func (h *Host) deliver(ctx context.Context, p program, target string) error {
	r, err := p.open()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	sftpErr := h.deliverSFTP(ctx, data, target)
	if sftpErr == nil || ctx.Err() != nil {
		return sftpErr
	}
	if err := h.deliverShell(ctx, data, target); err != nil {
		return fmt.Errorf("%w (by SFTP: %s)", err, cleanText(sftpErr.Error()))
	}
	return nil
}

// deliverSFTP is deliver by SFTP, in a session of its own.
func (h *Host) deliverSFTP(ctx context.Context, data []byte, target string) error {
	startCtx, cancel := context.WithTimeoutCause(ctx, sftpTime, fmt.Errorf("no answer within %s",
		sftpTime))
	defer cancel()
	s, err := h.session(startCtx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // closing the file reports errors
	in, err := s.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return err
	}
	client, err := await(startCtx, nil, func() (*sftp.Client, error) {
		if err := s.RequestSubsystem("sftp"); err != nil {
			return nil, err
		}
		return sftp.NewClientPipe(out, in)
	}, func(c *sftp.Client) { _ = c.Close() })
	if err != nil {
		return err
	}
	_, err = await(ctx, nil, func() (int64, error) {
		f, err := client.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return 0, err
		}
		n, err := f.ReadFromWithConcurrency(bytes.NewReader(data), sftpParallel)
		return n, errors.Join(err, f.Close())
	}, func(int64) {})
	_ = s.Close() // first: the client's Close waits for the server
	_ = client.Close()
	return err
}

// deliverShell is deliver through a shell.
func (h *Host) deliverShell(ctx context.Context, data []byte, target string) error {
	script := `umask 077; cat >"$0" || { rm -f "$0"; exit 1; }`
	p, err := h.start(ctx, "exec /bin/sh -c "+quote(script)+" "+quote(target))
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // the exit code reports errors
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
	written := make(chan error, 1)
	go func() { // a full disk ends the reader
		_, err := p.in.Write(data)
		written <- errors.Join(err, p.in.Close())
	}()
	select {
	case <-p.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.exitErr != nil {
		return fmt.Errorf("%w: %s", p.exitErr, cleanText(p.stderr.String()))
	}
	return <-written
}
