package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// program is a helper that can be sent.
type program struct {
	name, digest string
	open         func() (io.ReadCloser, error)
}

// candidates are the helpers for hosts, by their processors.
type candidates struct {
	byArch map[string]program
	args   []string
}

// archs are the processors for which there may be a helper, named as by the Go toolchain.
var archs = []string{"amd64", "arm64"}

// programs returns the helpers that there are. None at all is no error: the host may say more.
func programs(own HelperProgram) (*candidates, error) {
	all := &candidates{byArch: make(map[string]program)}
	if own.Path == "" || own.IfMissing {
		for _, arch := range archs {
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
		if own.Path == "" || len(all.byArch) > 0 {
			return all, nil
		}
	}
	arch, err := helper.Arch(own.Path)
	if err == nil && !slices.Contains(archs, arch) {
		err = fmt.Errorf("%s is for another processor than amd64 and arm64", own.Path)
	}
	if err != nil {
		if own.IfMissing {
			return all, nil
		}
		return nil, &ConfigError{Field: "helper", Reason: err.Error()}
	}
	digest, err := helper.Digest(own.Path)
	if err != nil {
		return nil, &ConfigError{Field: "helper", Reason: err.Error()}
	}
	all.args = own.Args
	all.byArch[arch] = program{"sandboxd-linux-" + arch + "-" + digest, digest, func() (io.ReadCloser, error) { return os.Open(own.Path) }}
	return all, nil
}

// of returns name and digest of the helper for a processor; they are empty if there is none.
func (c *candidates) of(arch string) (name, digest string) {
	p := c.byArch[arch]
	return p.name, p.digest
}

func (c *candidates) named(name string) (program, bool) {
	for _, p := range c.byArch {
		if p.name == name {
			return p, true
		}
	}
	return program{}, false
}

// deliver puts a helper into the file target of the host: by SFTP, and where that is not to be had through a shell.
func (h *Host) deliver(ctx context.Context, p program, target string) error {
	r, err := p.open()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	serr := h.deliverFile(ctx, data, target)
	if serr == nil {
		return nil
	}
	err = serr
	if ctx.Err() == nil {
		if err = h.deliverPipe(ctx, data, target); err == nil {
			return nil
		}
		err = fmt.Errorf("%w (by SFTP: %s)", err, cleanText(serr.Error()))
	}
	h.withdraw(ctx, target)
	return err
}

// withdrawTime bounds how long the removal of what was not sent to its end may take.
const withdrawTime = 5 * time.Second

// withdraw removes a part of a helper, as far as that is possible. What is left goes when the next one is started.
func (h *Host) withdraw(ctx context.Context, target string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
	defer cancel()
	p, err := h.start(ctx, "exec rm -f "+quote(target))
	if err != nil {
		return
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	_ = p.Close()
}

// deliverFile is deliver by SFTP.
func (h *Host) deliverFile(ctx context.Context, data []byte, target string) (err error) {
	files, err := h.openSFTP(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = files.Close() })
	defer func() {
		stop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		_ = files.Close() // the file's own Close has told
	}()
	f, err := files.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.ReadFromWithConcurrency(strings.NewReader(string(data)), sftpParallel)
	return errors.Join(err, f.Close())
}

// sftpParallel is how many writes are on their way at once.
const sftpParallel = 64

// deliverPipe is deliver through a shell.
func (h *Host) deliverPipe(ctx context.Context, data []byte, target string) error {
	p, err := h.start(ctx, "exec /bin/sh -c "+quote(`umask 077; exec cat >"$0"`)+" "+quote(target))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer func() {
		stop()
		_ = p.Close()
	}()
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
	written := make(chan error, 1)
	go func() { // one that does not read may hold it up for ever
		_, err := p.in.Write(data)
		written <- errors.Join(err, p.in.Close())
	}()
	select {
	case <-p.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.status != nil {
		return fmt.Errorf("%w: %s", p.status, cleanText(p.said.String()))
	}
	return <-written
}

// sftpTime bounds the wait for the file transfer subsystem. One that is started by a login that prints something never
// answers.
const sftpTime = 10 * time.Second

// fileClient is the file transfer subsystem in a session of its own.
type fileClient struct {
	*sftp.Client
	session *session
}

// Close ends the session. Transfers end.
func (f *fileClient) Close() error {
	_ = f.session.Close() // first, so that nobody waits for the server
	return f.Client.Close()
}

// openSFTP opens the file transfer subsystem.
func (h *Host) openSFTP(ctx context.Context, opts ...sftp.ClientOption) (_ *fileClient, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sftpTime, fmt.Errorf("no answer within %s", sftpTime))
	defer cancel()
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	in, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	client, err := await(ctx, func() (*sftp.Client, error) {
		if err := s.RequestSubsystem("sftp"); err != nil {
			return nil, err
		}
		return sftp.NewClientPipe(out, in, opts...)
	}, func(c *sftp.Client) { _ = c.Close() })
	if err != nil {
		return nil, err
	}
	return &fileClient{client, s}, nil
}

// await calls open and waits for it until ctx ends. What comes later is dropped.
func await[T any](ctx context.Context, open func() (T, error), drop func(T)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := open()
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				drop(r.got)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}
