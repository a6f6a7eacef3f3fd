package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pkg/sftp"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

const (
	// sftpTime bounds the start of the SFTP subsystem. One behind a login that prints something
	// never answers.
	sftpTime = 10 * time.Second
	// sftpParallel is the number of concurrent writes.
	sftpParallel = 64
)

// deliver writes a helper into the file target of the host: by SFTP, or else through a shell.
func (h *Host) deliver(ctx context.Context, p *remote.Program, target string) error {
	data, err := p.Content()
	if err != nil {
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

// deliverSFTP is deliver by SFTP, in a separate session.
func (h *Host) deliverSFTP(ctx context.Context, data []byte, target string) error {
	startCtx, cancel := context.WithTimeoutCause(ctx, sftpTime,
		fmt.Errorf("no answer within %s", sftpTime))
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
