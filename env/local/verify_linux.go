package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// maxSecrets bounds the number of paths of secrets to check.
const maxSecrets = 200

// Verify runs a probe in the sandbox that tries to break the guarantees of Info, and to reach the
// canaries of host, which may be the zero value. An error means no result; it wraps
// errors.ErrUnsupported if the environment has no sandbox. Verify copies the helper's program,
// which contains the probe, to the directory for temporary files and removes it afterwards.
func (e *SupervisedEnvironment) Verify(
	ctx context.Context,
	host verify.Host,
) (_ verify.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("local: verify: %w", err)
		}
	}()
	if e.plan == nil {
		return verify.Report{}, fmt.Errorf("the environment has no sandbox: %w", errors.ErrUnsupported)
	}
	name := filepath.Join(e.plan.Temp, ".probe-"+strings.ToLower(rand.Text()))
	whole := io.NewSectionReader(e.program.File, 0, math.MaxInt64)
	if _, err := e.WriteFile(ctx, name, whole, env.WriteOptions{
		Mode:         0o500,
		MustNotExist: true,
	}); err != nil {
		return verify.Report{}, err
	}
	defer func() {
		err = errors.Join(err, e.Remove(context.WithoutCancel(ctx), name,
			env.RemoveOptions{}))
	}()
	r, err := verify.Run(ctx, e, append([]string{name}, e.program.Args...), e.expect(host))
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf(
			"%w (the file system may be mounted noexec; set TMPDIR to a directory of another)", err,
		)
	}
	return r, err
}

// expect returns the checks for the guarantees of e.
func (e *SupervisedEnvironment) expect(host verify.Host) verify.Expect {
	info, p := e.Info(), e.plan
	has := func(name env.GuaranteeName) bool { return info.Strength(name) != env.Absent }
	x := verify.Expect{
		NoNewRights: has(env.NoNewRights), Filters: 1,
		Writable: []string{info.WorkDir, p.Temp},
	}
	x.By, x.SocketsBy = enforcers(p)
	if has(env.ConfinedWrites) {
		if x.Unwritable = e.outside(); p.By == sandbox.Bubblewrap {
			x.ReadOnly, x.Unwritable = x.Unwritable, nil // which takes mounts
		}
	}
	if has(env.KeptHooks) {
		x.Kept = p.ReadOnly[:min(len(p.ReadOnly), maxSecrets)]
		x.GitDirs = p.GitDirs
	}
	if has(env.HiddenSecrets) {
		x.Unreadable, x.HiddenHome = p.HiddenPaths(maxSecrets)
	}
	if has(env.NoNetwork) {
		x.NoNetwork, x.NoSockets = p.By == sandbox.Bubblewrap, p.By == sandbox.Landlock
		x.Host.Listening = host.Listening
	}
	if has(env.HiddenSockets) {
		x.Host.Sockets, x.NoUnixSockets = host.Sockets, p.RefusesUnixSockets()
	}
	if has(env.HiddenProcesses) {
		x.Host.Process, x.Host.Name = host.Process, host.Name
	}
	if p.By == sandbox.Bubblewrap {
		x.Host.Files = host.Files // which are among temporary files
	}
	return x
}

// enforcers returns the names of the mechanisms that protect files, and sockets of other programs.
func enforcers(p *sandbox.Plan) (files, sockets string) {
	switch {
	case p.By == sandbox.Bubblewrap:
		return "mounts of bubblewrap", "mounts of bubblewrap"
	case p.By == sandbox.Landlock && !p.Network:
		return "Landlock", "the system call filter that goes with Landlock"
	case p.By == sandbox.Landlock:
		return "Landlock", "Landlock and the system call filter that goes with it"
	}
	return string(p.By), string(p.By)
}

// outside returns directories of this machine in which nothing may be created.
func (e *SupervisedEnvironment) outside() (names []string) {
	p := e.plan
	writable := append(slices.Clone(p.Write), p.Temp)
	if p.By == sandbox.Bubblewrap {
		writable = append(writable, "/tmp", "/var/tmp")
	}
	candidates := append(
		[]string{
			"/",
			"/etc",
			"/usr",
			"/var",
			"/home",
			"/srv",
			"/opt",
			"/run",
			filepath.Dir(e.Info().WorkDir),
		},
		sandbox.HomeDirs()...)
	for _, name := range candidates {
		name, err := filepath.EvalSymlinks(name)
		if err != nil ||
			slices.ContainsFunc(writable, func(w string) bool { return sandbox.Within(name, w) }) ||
			slices.Contains(names, name) {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			names = append(names, name)
		}
	}
	return names
}
