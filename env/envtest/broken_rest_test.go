package envtest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// outOf returns a breaker that changes the streams of CopyOut.
func outOf(f func(r io.ReadCloser, err error) (io.ReadCloser, error)) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.copyOut = func(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
			return f(good.CopyOut(ctx, dir, names...))
		}
	})
}

// entriesOf returns a breaker that changes the entries that CopyOut packs of the directory root.
func entriesOf(f func(root string, entries []tarEntry) []tarEntry) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.copyOut = func(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
			r, err := good.CopyOut(ctx, dir, names...)
			if err != nil {
				return nil, err
			}
			defer func() { _ = r.Close() }()
			var entries []tarEntry
			t := tar.NewReader(r)
			for {
				h, err := t.Next()
				if err != nil {
					break
				}
				data, _ := io.ReadAll(t)
				entries = append(entries, tarEntry{*h, string(data)})
			}
			return io.NopCloser(bytes.NewReader(pack(f(host(good, dir), entries)...))), nil
		}
	})
}

func brokenCopies() []breakage {
	return []breakage{
		{"CopyIn trusts names and loses modes", alter(func(good env.Environment, a *altered) {
			a.copyIn = func(_ context.Context, dir string, archive io.Reader) error {
				return naiveUnpack(host(good, dir), archive)
			}
		}), []string{
			"copy/in_leaving_names", "copy/in_through_symlinks", "copy/in_hard_links",
			"copy/in_damaged", "copy/in_devices", "copy/in",
		}},
		{"CopyIn empties the directory", alter(func(good env.Environment, a *altered) {
			a.copyIn = func(ctx context.Context, dir string, archive io.Reader) error {
				_ = os.RemoveAll(host(good, dir))
				return good.CopyIn(ctx, dir, archive)
			}
		}), []string{"copy/in_over_existing"}},
		{"CopyIn stops after many files", alter(func(good env.Environment, a *altered) {
			a.copyIn = func(ctx context.Context, dir string, archive io.Reader) error {
				var head bytes.Buffer
				if n, _ := io.CopyN(&head, archive, 1<<20); n == 1<<20 {
					head.Truncate(1<<20 - 1024)
					head.Write(make([]byte, 1024))
				}
				return good.CopyIn(ctx, dir, &head)
			}
		}), []string{"copy/in_2000_files"}},
	}
}

func brokenCopyOut() []breakage {
	return []breakage{
		{"CopyOut follows symlinks", entriesOf(func(root string, entries []tarEntry) []tarEntry {
			for i, e := range entries {
				if data, err := os.ReadFile(root + "/" + e.Name); err == nil &&
					e.Typeflag == tar.TypeSymlink {
					entries[i] = tarFile(e.Name, string(data))
				}
			}
			return entries
		}), []string{"copy/out"}},
		{"CopyOut leaves out directories", entriesOf(func(root string, entries []tarEntry) []tarEntry {
			return slices.DeleteFunc(entries, func(e tarEntry) bool { return e.Typeflag == tar.TypeDir })
		}), []string{"copy/round_trip"}},
		{"CopyOut has no order", entriesOf(func(root string, entries []tarEntry) []tarEntry {
			slices.Reverse(entries)
			return entries
		}), []string{"copy/out_names"}},
		{"CopyOut packs special files", entriesOf(func(root string, entries []tarEntry) []tarEntry {
			return append(entries, tarDevice("pipe"))
		}), []string{"copy/out_special_files"}},
		{"CopyOut packs hard links", entriesOf(func(root string, entries []tarEntry) []tarEntry {
			last := len(entries) - 1
			entries[last] = tarHardLink(entries[last].Name, entries[0].Name)
			return entries
		}), []string{"copy/out_hard_links"}},
		{"CopyOut takes any name", alter(func(good env.Environment, a *altered) {
			a.copyOut = func(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
				for _, name := range names {
					if name = host(good, path.Join(dir, name)); path.Base(name) == "outside" ||
						strings.HasPrefix(name, "/etc") {
						return io.NopCloser(archive(tarFile(path.Base(name), "x"))), nil
					}
				}
				return good.CopyOut(ctx, dir, names...)
			}
		}), []string{"copy/out_bad_names"}},
		{"CopyOut ignores missing names", outOf(func(r io.ReadCloser, err error) (io.ReadCloser, error) {
			if err != nil {
				return io.NopCloser(emptyArchive()), nil
			}
			return struct {
				io.Reader
				io.Closer
			}{readerFunc(func(p []byte) (int, error) {
				n, err := r.Read(p)
				if errors.Is(err, fs.ErrNotExist) {
					err = io.EOF
				}
				return n, err
			}), r}, nil
		}), []string{"file/missing"}},
		{"streams end without errors", outOf(func(r io.ReadCloser, err error) (io.ReadCloser, error) {
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{readerFunc(func(p []byte) (int, error) {
				n, err := r.Read(p)
				if err != nil {
					err = io.EOF
				}
				return n, err
			}), r}, nil
		}), []string{"copy/out_closed_early"}},
		{
			"a stream is cut by Close, at the end of an entry", cutByClose,
			[]string{"life/close_during_copy_out"},
		},
	}
}

// cutByClose ends a stream after its first entry once the environment is closed.
func cutByClose(t *testing.T, good env.Environment) env.Environment {
	return alter(func(_ env.Environment, a *altered) {
		a.copyOut = func(context.Context, string, ...string) (io.ReadCloser, error) {
			return io.NopCloser(archive(tarFile("1", strings.Repeat("x", 8<<20)))), nil
		}
	})(t, good)
}

// naiveUnpack unpacks like a first attempt.
func naiveUnpack(dir string, archive io.Reader) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := tar.NewReader(archive)
	for {
		h, err := t.Next()
		if err != nil {
			return nil
		}
		name := path.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, name)
		case tar.TypeLink:
			err = os.Link(path.Join(dir, h.Linkname), name)
		default:
			var data []byte
			data, _ = io.ReadAll(t)
			_ = os.MkdirAll(path.Dir(name), 0o755)
			err = os.WriteFile(name, data, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// infoOf returns a breaker that changes the result of Info.
func infoOf(f func(info *env.Info)) breaker {
	return alter(func(good env.Environment, a *altered) {
		a.info = func() env.Info {
			info := good.Info()
			f(&info)
			return info
		}
	})
}

// badSearcher is an environment with optional interfaces that mean something else.
type badSearcher struct{ altered }

func (b *badSearcher) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	opts.NoIgnore = true
	return search.Walk(ctx, plain{b.Environment}, root, opts, func(e search.Entry) error {
		if err := fn(e); err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
		return nil
	})
}

func (b *badSearcher) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	opts.NoIgnore, opts.MaxMatches, opts.Pattern = true, cmp.Or(opts.MaxMatches,
		-1), strings.TrimPrefix(opts.Pattern, "(")
	return search.Grep(ctx, plain{b.Environment}, opts, fn)
}

func (b *badSearcher) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	opts.NoIgnore = true
	entries, err := search.Glob(ctx, plain{b.Environment}, opts)
	slices.Reverse(entries)
	return entries, err
}

func brokenRest() []breakage {
	return []breakage{
		{"optional interfaces differ", func(_ *testing.T, good env.Environment) env.Environment {
			return &badSearcher{newAltered(good)}
		}, []string{
			"search/walk", "search/walk_skips", "search/glob", "search/glob_newest_first",
			"search/grep", "search/grep_limits", "search/errors",
		}},
		{
			"Info names no backend", infoOf(func(info *env.Info) { info.Backend = "" }),
			[]string{"info/plausible"},
		},
		{
			"Info has Shell and NoShell", infoOf(func(info *env.Info) { info.NoShell = "no shell" }),
			[]string{"info/plausible"},
		},
		{"Info has a shell that does not work", infoOf(func(info *env.Info) {
			info.Shell = []string{"/no/such/shell", "-c"}
		}), []string{"info/shell"}},
		{
			"Info names another system", infoOf(func(info *env.Info) { info.OS = "plan9" }),
			[]string{"info/system"},
		},
		{"Info names nobody who enforces a promise", infoOf(func(info *env.Info) {
			info.Guarantees = []env.Guarantee{{Name: env.KillTree, Strength: env.Enforced}}
		}), []string{"info/plausible"}},
		{"Info promises to kill processes that escape", infoOf(func(info *env.Info) {
			info.Guarantees = []env.Guarantee{{Name: env.KillTree, Strength: env.Enforced, By: "nobody"}}
		}), []string{"kill/env_cleared_escapee_dies"}},
		{
			"Info names another directory", infoOf(func(info *env.Info) { info.WorkDir = "/" }),
			[]string{"info/workdir"},
		},
		{"Info changes", func(_ *testing.T, good env.Environment) env.Environment {
			var n atomic.Int64
			return infoOf(func(info *env.Info) { info.OSVersion = strings.Repeat("x", int(n.Add(1))) })(nil,
				good)
		}, []string{"info/does_not_change"}},
		{"commands see secrets of the host", func(t *testing.T, good env.Environment) env.Environment {
			e, err := local.New(local.Config{
				Dir:     good.Info().WorkDir,
				Inherit: &vars.Filter{Mode: vars.All},
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}, []string{"info/no_secret_of_the_host"}},
	}
}

func brokenLife() []breakage {
	return []breakage{
		{"a second Close is an error", alter(func(good env.Environment, a *altered) {
			var closed atomic.Bool
			a.close = func() error {
				if closed.Swap(true) {
					return fs.ErrClosed
				}
				return good.Close()
			}
		}), []string{"life/close_concurrently"}},
		{"Close hangs", alter(func(good env.Environment, a *altered) {
			var calls atomic.Int32
			again := make(chan struct{})
			a.close = func() error {
				if calls.Add(1) == 2 {
					close(again) // The suite closes the environment after the case.
				}
				<-again
				return good.Close()
			}
		}), []string{"life/close_twice"}},
		{"Close does nothing", alter(func(_ env.Environment, a *altered) {
			a.close = func() error { return nil }
		}), []string{
			"life/use_after_close", "life/close_during_exec", "life/close_during_write",
			"background/dies_with_close", "background/setsid_dies_with_close",
		}},
		{"reads are not for several callers", alter(func(good env.Environment, a *altered) {
			var busy atomic.Bool
			a.stat = func(ctx context.Context, name string) (fs.FileInfo, error) {
				if !busy.CompareAndSwap(false, true) {
					return nil, errors.New("busy")
				}
				defer busy.Store(false)
				time.Sleep(100 * time.Millisecond)
				return good.Stat(ctx, name)
			}
		}), []string{"life/everything_at_once"}},
	}
}
