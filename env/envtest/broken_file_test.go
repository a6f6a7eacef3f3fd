package envtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// namesOf returns a breaker that changes the name of every file.
func namesOf(f func(name string) string) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.open = func(ctx context.Context, name string) (fs.File, error) {
			return good.Open(ctx, f(name))
		}
		a.stat = func(ctx context.Context, name string) (fs.FileInfo, error) {
			return good.Stat(ctx, f(name))
		}
		a.lstat = func(ctx context.Context, name string) (fs.FileInfo, error) {
			return good.Lstat(ctx, f(name))
		}
		a.readLink = func(ctx context.Context, name string) (string, error) {
			return good.ReadLink(ctx, f(name))
		}
		a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
			return good.ReadDir(ctx, f(name))
		}
		a.writeFile = func(ctx context.Context, name string, r io.Reader,
			opts env.WriteOptions,
		) (env.Written, error) {
			return good.WriteFile(ctx, f(name), r, opts)
		}
		a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
			return good.Remove(ctx, f(name), opts)
		}
	})
}

// errorsOf returns a breaker that changes the error of every method that takes a name.
func errorsOf(f func(err error) error) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.open = func(ctx context.Context, name string) (fs.File, error) {
			file, err := good.Open(ctx, name)
			return file, f(err)
		}
		a.stat = func(ctx context.Context, name string) (fs.FileInfo, error) {
			info, err := good.Stat(ctx, name)
			return info, f(err)
		}
		a.lstat = func(ctx context.Context, name string) (fs.FileInfo, error) {
			info, err := good.Lstat(ctx, name)
			return info, f(err)
		}
		a.readLink = func(ctx context.Context, name string) (string, error) {
			target, err := good.ReadLink(ctx, name)
			return target, f(err)
		}
		a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
			entries, err := good.ReadDir(ctx, name)
			return entries, f(err)
		}
		a.writeFile = func(ctx context.Context, name string, r io.Reader,
			opts env.WriteOptions,
		) (env.Written, error) {
			w, err := good.WriteFile(ctx, name, r, opts)
			return w, f(err)
		}
		a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
			return f(good.Remove(ctx, name, opts))
		}
		a.copyIn = func(ctx context.Context, dir string, archive io.Reader) error {
			return f(good.CopyIn(ctx, dir, archive))
		}
	})
}

// writeCall is a call of WriteFile.
type writeCall struct {
	good env.Environment
	name string
	r    io.Reader
	opts env.WriteOptions
	// write calls good.WriteFile with the other fields.
	write func() (env.Written, error)
}

func (w *writeCall) hostName() string { return host(w.good, w.name) }

// writeOf returns a breaker that replaces WriteFile.
func writeOf(f func(w *writeCall) (env.Written, error)) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.writeFile = func(
			ctx context.Context, name string, r io.Reader, opts env.WriteOptions,
		) (env.Written, error) {
			w := &writeCall{good: good, name: name, r: r, opts: opts}
			w.write = func() (env.Written, error) { return good.WriteFile(ctx, w.name, w.r, w.opts) }
			return f(w)
		}
	})
}

// hidden hides an error from errors.Is.
func hidden(target error) func(err error) error {
	return func(err error) error {
		if errors.Is(err, target) {
			return &fs.PathError{Op: "open", Path: err.Error(), Err: errors.New("failed")}
		}
		return err
	}
}

func brokenFiles() []breakage {
	return []breakage{
		{"files are text", writeOf(func(w *writeCall) (env.Written, error) {
			data, err := io.ReadAll(w.r)
			if err != nil {
				return env.Written{}, err
			}
			w.r = strings.NewReader(strings.ToValidUTF8(string(data), "?"))
			return w.write()
		}), []string{"file/contents"}},
		{"reads are text", alter(func(good env.Environment, a *altered) {
			a.open = func(ctx context.Context, name string) (fs.File, error) {
				f, err := good.Open(ctx, name)
				if err != nil {
					return nil, err
				}
				data, err := io.ReadAll(f)
				return memFile{f, strings.NewReader(strings.ReplaceAll(string(data), "\r\n", "\n"))}, err
			}
		}), []string{"file/written_by_a_command"}},
		{"reads end early", alter(func(good env.Environment, a *altered) {
			a.open = func(ctx context.Context, name string) (fs.File, error) {
				f, err := good.Open(ctx, name)
				return memFile{f, io.LimitReader(f, 100_000)}, err
			}
		}), []string{"file/open_file", "file/large"}},
		{"names are trimmed", namesOf(strings.TrimSpace), []string{"file/names"}},
		{"names are URLs", namesOf(func(name string) string {
			return strings.ReplaceAll(name, "%C5%91", "ő")
		}), []string{"file/names"}},
		{"relative names are below TMPDIR", func(t *testing.T, good env.Environment) env.Environment {
			dir := t.TempDir()
			return namesOf(func(name string) string {
				if name == "" || path.IsAbs(name) {
					return name
				}
				return dir + "/" + name
			})(t, good)
		}, []string{"file/relative_and_absolute", "exec/dir_default"}},
		{"an empty name is the working directory", namesOf(func(name string) string {
			if name == "" {
				return "."
			}
			return name
		}), []string{"file/invalid_names"}},
		{"errors are texts", errorsOf(func(err error) error {
			if err != nil {
				err = errors.New(err.Error())
			}
			return err
		}), []string{"file/symlink_loop", "copy/in_not_a_directory"}},
		{"a missing file is any error", errorsOf(hidden(fs.ErrNotExist)), []string{
			"file/symlinks_followed",
		}},
		{
			"a name below a file is any error", errorsOf(hidden(env.ErrNotDir)),
			[]string{"file/below_a_file", "file/readdir_of_file"},
		},
		{"a directory is any error", errorsOf(hidden(env.ErrIsDir)), []string{
			"file/directory_is_no_file",
		}},
		{"missing rights are any error", errorsOf(hidden(fs.ErrPermission)), []string{
			"file/permission",
			"write/read_only_file",
		}},
	}
}

func brokenListings() []breakage {
	return []breakage{
		{"reading a pipe hangs", hangingPipe, []string{"file/pipe"}},
		{"a special file is any error", errorsOf(hidden(env.ErrNotRegular)), []string{
			"file/socket", "file/device",
		}},
		{"Stat does not follow symlinks", alter(func(good env.Environment, a *altered) {
			a.stat = func(_ context.Context, name string) (fs.FileInfo, error) {
				return os.Lstat(host(good, name))
			}
		}), []string{"file/stat_follows_symlinks"}},
		{"Lstat follows symlinks", alter(func(good env.Environment, a *altered) {
			a.lstat = good.Stat
		}), []string{"file/lstat"}},
		{"ReadLink returns where a symlink leads", alter(func(good env.Environment, a *altered) {
			a.readLink = func(_ context.Context, name string) (string, error) {
				target, err := os.Readlink(host(good, name))
				if err != nil {
					return "", err
				}
				return path.Join(path.Dir(host(good, name)), target), nil
			}
		}), []string{"file/readlink"}},
		{"ReadLink of a file is any error", alter(func(good env.Environment, a *altered) {
			a.readLink = func(ctx context.Context, name string) (string, error) {
				target, err := good.ReadLink(ctx, name)
				return target, hidden(fs.ErrInvalid)(err)
			}
		}), []string{"file/readlink"}},
		{"Stat returns no modes and times", alter(func(good env.Environment, a *altered) {
			a.stat = func(ctx context.Context, name string) (fs.FileInfo, error) {
				info, err := good.Stat(ctx, name)
				return flatInfo{info}, err
			}
		}), []string{"file/stat"}},
		{"ReadDir follows symlinks", alter(func(good env.Environment, a *altered) {
			a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
				entries, err := good.ReadDir(ctx, name)
				for i, d := range entries {
					if info, err := good.Stat(ctx, name+"/"+d.Name()); err == nil {
						entries[i] = fs.FileInfoToDirEntry(info)
					}
				}
				return entries, err
			}
		}), []string{"file/readdir_entries"}},
		{"ReadDir is not sorted", alter(func(good env.Environment, a *altered) {
			a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
				entries, err := good.ReadDir(ctx, name)
				slices.Reverse(entries)
				return entries, err
			}
		}), []string{"file/readdir_sorted", "search/fs"}},
		{"ReadDir gives one page", alter(func(good env.Environment, a *altered) {
			a.readDir = func(ctx context.Context, name string) ([]fs.DirEntry, error) {
				entries, err := good.ReadDir(ctx, name)
				return entries[:min(1000, len(entries))], err
			}
		}), []string{"file/readdir_many"}},
	}
}

// memFile is a file with another content.
type memFile struct {
	fs.File
	io.Reader
}

func (f memFile) Read(p []byte) (int, error) { return f.Reader.Read(p) }

// flatInfo describes every file as made at no time, with the same mode.
type flatInfo struct{ fs.FileInfo }

func (i flatInfo) Mode() fs.FileMode { return i.FileInfo.Mode().Type() | 0o604 }

func (i flatInfo) ModTime() time.Time { return time.Time{} }

// hangingPipe hangs, as a naive open of a pipe that nobody writes to.
func hangingPipe(t *testing.T, good env.Environment) env.Environment {
	return alter(func(good env.Environment, a *altered) {
		a.open = func(ctx context.Context, name string) (fs.File, error) {
			if info, err := good.Stat(ctx, name); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
				<-t.Context().Done()
			}
			return good.Open(ctx, name)
		}
	})(t, good)
}

func brokenWrites() []breakage {
	return []breakage{
		{"writes truncate and write", writeOf(truncatingWrite), []string{
			"write/open_reader_keeps_old_content", "write/if_sha256",
		}},
		{"nothing is created", writeOf(func(w *writeCall) (env.Written, error) {
			written, err := w.write()
			written.Created = false
			return written, err
		}), []string{"write/must_not_exist", "file/sizes"}},
		{"InPlace is the opposite", writeOf(func(w *writeCall) (env.Written, error) {
			written, err := w.write()
			written.InPlace = !written.InPlace
			return written, err
		}), []string{"write/in_read_only_directory", "write/atomic"}},
		{"writes append", writeOf(func(w *writeCall) (env.Written, error) {
			old, _ := os.ReadFile(w.hostName())
			w.r = io.MultiReader(bytes.NewReader(old), w.r)
			return w.write()
		}), []string{"write/overwrites", "write/reader_in_pieces"}},
		{"a write loses the mode", writeOf(func(w *writeCall) (env.Written, error) {
			if w.opts.Mode == 0 {
				w.opts.Mode = 0o640
			} else {
				w.opts.Mode &^= 0o022
			}
			return w.write()
		}), []string{"write/mode_kept", "write/mode_of_new_file", "write/mode_given"}},
		{"parents are private", writeOf(func(w *writeCall) (env.Written, error) {
			if err := os.MkdirAll(path.Dir(w.hostName()), 0o700); err != nil {
				return env.Written{}, err
			}
			return w.write()
		}), []string{"write/parents"}},
		{"a write replaces a symlink", writeOf(func(w *writeCall) (env.Written, error) {
			if info, err := os.Lstat(w.hostName()); err == nil && info.Mode().Type() == fs.ModeSymlink {
				if err := os.Remove(w.hostName()); err != nil {
					return env.Written{}, err
				}
			}
			return w.write()
		}), []string{"write/through_symlink", "write/through_dangling_symlink"}},
		{"a write leaves litter", writeOf(func(w *writeCall) (env.Written, error) {
			written, err := w.write()
			_ = os.WriteFile(w.hostName()+".tmp", nil, 0o600)
			return written, err
		}), []string{
			"write/failing_reader", "write/cancelled", "write/concurrent_writers", "write/result",
		}},
	}
}

// meeting returns a function that blocks its first caller for an environment until the second call.
func meeting() func(e env.Environment) {
	type gate struct {
		calls atomic.Int32
		open  chan struct{}
	}
	var gates sync.Map
	return func(e env.Environment) {
		value, _ := gates.LoadOrStore(e, &gate{open: make(chan struct{})})
		g, _ := value.(*gate)
		if g.calls.Add(1) == 2 {
			close(g.open)
		}
		<-g.open
	}
}

// checkedBefore returns a breaker that checks IfSHA256 before it calls wait and reads the content.
func checkedBefore(wait func(e env.Environment)) breaker {
	return writeOf(func(w *writeCall) (env.Written, error) {
		if w.opts.IfSHA256 == "" {
			return w.write()
		}
		old, err := os.ReadFile(w.hostName())
		if err == nil && hash(string(old)) != w.opts.IfSHA256 {
			return env.Written{}, &fs.PathError{Op: "write", Path: w.name, Err: env.ErrChanged}
		}
		wait(w.good)
		if err == nil {
			w.opts.IfSHA256 = ""
		}
		return w.write()
	})
}

func brokenConditions() []breakage {
	meet := meeting()
	return []breakage{
		{"MustNotExist is checked before", writeOf(func(w *writeCall) (env.Written, error) {
			if _, err := os.Stat(w.hostName()); err == nil && w.opts.MustNotExist {
				return env.Written{}, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrExist}
			}
			if w.opts.MustNotExist {
				meet(w.good)
			}
			w.opts.MustNotExist = false
			return w.write()
		}), []string{"write/must_not_exist_one_winner"}},
		{
			"IfSHA256 is checked before the content is read", checkedBefore(func(env.Environment) {}),
			[]string{"write/if_sha256_checked_last"},
		},
		{
			"IfSHA256 is checked before another write", checkedBefore(meet),
			[]string{"write/if_sha256_one_winner"},
		},
		{"Remove is always recursive", alter(func(good env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, _ env.RemoveOptions) error {
				return good.Remove(ctx, name, env.RemoveOptions{Recursive: true})
			}
		}), []string{"remove/directory"}},
		{"Remove is never recursive", alter(func(good env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, _ env.RemoveOptions) error {
				return good.Remove(ctx, name, env.RemoveOptions{})
			}
		}), []string{"remove/recursive"}},
		{"Remove follows symlinks", alter(func(good env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
				_ = removeFollowing(good.Info().WorkDir, host(good, name))
				return good.Remove(ctx, name, opts)
			}
		}), []string{"remove/symlinks_below_not_followed"}},
		{"Remove removes the target of a symlink", alter(func(good env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
				if target, err := filepath.EvalSymlinks(host(good, name)); err == nil {
					name = target
				}
				return good.Remove(ctx, name, opts)
			}
		}), []string{"remove/symlink_itself"}},
		{"Remove of a missing file succeeds", alter(func(good env.Environment, a *altered) {
			a.remove = func(_ context.Context, name string, _ env.RemoveOptions) error {
				return os.RemoveAll(host(good, name))
			}
		}), []string{"remove/missing"}},
		{"Remove refuses read-only files", alter(func(good env.Environment, a *altered) {
			a.remove = func(ctx context.Context, name string, opts env.RemoveOptions) error {
				if info, err := good.Stat(ctx, name); err == nil && info.Mode()&0o200 == 0 {
					return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
				}
				return good.Remove(ctx, name, opts)
			}
		}), []string{"remove/file"}},
	}
}

// truncatingWrite writes like os.WriteFile.
func truncatingWrite(w *writeCall) (env.Written, error) {
	if err := os.MkdirAll(path.Dir(w.hostName()), 0o700); err != nil {
		return env.Written{}, err
	}
	f, err := os.Create(w.hostName())
	if err != nil {
		return env.Written{}, err
	}
	n, err := io.Copy(f, w.r)
	return env.Written{Size: n}, errors.Join(err, f.Close())
}

// removeFollowing empties the targets of symlinks at or below name, within root only.
func removeFollowing(root, name string) error {
	return fs.WalkDir(os.DirFS("/"), strings.TrimPrefix(name, "/"), func(name string, d fs.DirEntry,
		err error,
	) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		info, err := os.Stat("/" + name)
		if err != nil {
			return nil
		}
		target, err := os.Readlink("/" + name)
		if err != nil {
			return err
		}
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(name), target)
		}
		if !strings.HasPrefix(target, root+"/") {
			return nil
		}
		if info.IsDir() {
			return errors.Join(os.RemoveAll(target), os.Mkdir(target, 0o700))
		}
		return os.Remove(target)
	})
}
