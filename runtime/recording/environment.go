package recording

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// environment stands for that of a recorded session. It has no files, and runs nothing.
type environment struct{ info env.Info }

var _ env.Environment = environment{}

// Environment returns an environment that stands for the recorded one when the results of tools are
// recorded, too. It has no files and runs nothing. It is nil if the session had none.
func (s *Session) Environment() env.Environment {
	in := s.Runs[0].In
	if in.Backend == "" {
		return nil
	}
	info := env.Info{Backend: in.Backend, WorkDir: in.WorkDir, NoShell: "the session had none"}
	if s.surroundings != nil {
		info.OS, info.OSVersion = s.surroundings.Platform, s.surroundings.OSVersion
	}
	if in.Shell != "" {
		info.Shell, info.NoShell = []string{in.Shell, "-c"}, ""
	}
	for _, name := range []env.GuaranteeName{env.ConfinedCommands, env.ReadOnlyFiles} {
		info.Guarantees = append(info.Guarantees, env.Guarantee{
			Name: name, Strength: env.Enforced, By: "the replay, which runs nothing",
		})
	}
	return environment{info}
}

func missing(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func denied(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

func (e environment) Info() env.Info { return e.info.Clone() }

func (environment) Close() error { return nil }

func (environment) Exec(_ context.Context, c env.Command) (env.Result, error) {
	err := errors.Join(errors.ErrUnsupported, errors.New("a replay with recorded tools runs nothing"))
	return env.Result{}, &env.StartError{Argv: c.Argv, Err: err}
}

func (environment) Open(_ context.Context, name string) (fs.File, error) {
	return nil, missing("open", name)
}

func (environment) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, missing("stat", name)
}

func (environment) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	return nil, missing("lstat", name)
}

func (environment) ReadLink(_ context.Context, name string) (string, error) {
	return "", missing("readlink", name)
}

func (environment) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	return nil, missing("readdir", name)
}

func (environment) WriteFile(
	_ context.Context, name string, _ io.Reader, _ env.WriteOptions,
) (env.Written, error) {
	return env.Written{}, denied("write", name)
}

func (environment) Remove(_ context.Context, name string, _ env.RemoveOptions) error {
	return denied("remove", name)
}

func (environment) CopyIn(_ context.Context, dir string, _ io.Reader) error {
	return denied("copy in", dir)
}

func (environment) CopyOut(
	_ context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	return nil, missing("copy out", strings.Join(append([]string{dir}, names...), " "))
}
