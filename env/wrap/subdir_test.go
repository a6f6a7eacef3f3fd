package wrap_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// names is an environment that records the names in its arguments.
type names struct {
	info env.Info
	seen []string
}

var (
	_ env.Environment = (*names)(nil)
	_ search.Searcher = (*names)(nil)
	_ env.MultiReader = (*names)(nil)
)

func (n *names) add(name ...string) { n.seen = append(n.seen, name...) }

func (n *names) Info() env.Info { return n.info }

func (n *names) Exec(_ context.Context, cmd env.Command) (env.Result, error) {
	n.add(cmd.Dir)
	return env.Result{ExitCode: 7}, nil
}

func (n *names) Open(_ context.Context, name string) (fs.File, error) {
	n.add(name)
	return nil, nil
}

func (n *names) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	n.add(name)
	return nil, nil
}

func (n *names) Lstat(_ context.Context, name string) (fs.FileInfo, error) {
	n.add(name)
	return nil, nil
}

func (n *names) ReadLink(_ context.Context, name string) (string, error) {
	n.add(name)
	return "../target", nil
}

func (n *names) ReadDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	n.add(name)
	return nil, nil
}

func (n *names) WriteFile(
	_ context.Context, name string, _ io.Reader, _ env.WriteOptions,
) (env.Written, error) {
	n.add(name)
	return env.Written{}, nil
}

func (n *names) Remove(_ context.Context, name string, _ env.RemoveOptions) error {
	n.add(name)
	return nil
}

func (n *names) CopyIn(_ context.Context, dir string, _ io.Reader) error { n.add(dir); return nil }

func (n *names) CopyOut(_ context.Context, dir string, _ ...string) (io.ReadCloser, error) {
	n.add(dir)
	return io.NopCloser(strings.NewReader("")), nil
}

func (n *names) Close() error { n.add("close"); return nil }

func (n *names) Walk(
	_ context.Context, root string, _ search.WalkOptions, _ func(search.Entry) error,
) error {
	n.add(root)
	return nil
}

// Grep finds something in the file a of the path.
func (n *names) Grep(
	_ context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	n.add(opts.Path)
	return search.GrepStats{Files: 1}, fn(search.GrepMatch{Name: strings.TrimSuffix(opts.Path, "/") +
		"/a"})
}

func (n *names) Glob(_ context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	n.add(opts.Dir)
	return nil, nil
}

func (n *names) ReadFiles(_ context.Context, list []string, _ int64) ([]env.FileContent, error) {
	n.add(list...)
	var found []env.FileContent
	for _, name := range list {
		found = append(found, env.FileContent{Name: name, Data: []byte("content of " + name)})
	}
	return found, nil
}

// A method calls a method of an environment that takes a name.
type method func(ctx context.Context, name string) error

// methods are all methods of e that take a name.
func methods(e env.Environment) map[string]method {
	return map[string]method{
		"Exec": func(ctx context.Context, name string) error {
			return second(e.Exec(ctx, env.Command{Argv: []string{"true"}, Dir: name}))
		},
		"Open":  func(ctx context.Context, name string) error { return second(e.Open(ctx, name)) },
		"Stat":  func(ctx context.Context, name string) error { return second(e.Stat(ctx, name)) },
		"Lstat": func(ctx context.Context, name string) error { return second(e.Lstat(ctx, name)) },
		"ReadLink": func(ctx context.Context, name string) error {
			return second(e.ReadLink(ctx, name))
		},
		"ReadDir": func(ctx context.Context, name string) error { return second(e.ReadDir(ctx, name)) },
		"WriteFile": func(ctx context.Context, name string) error {
			return second(e.WriteFile(ctx, name, strings.NewReader(""), env.WriteOptions{}))
		},
		"Remove": func(ctx context.Context, name string) error {
			return e.Remove(ctx, name, env.RemoveOptions{})
		},
		"CopyIn": func(ctx context.Context, name string) error {
			return e.CopyIn(ctx, name, strings.NewReader(""))
		},
		"CopyOut": func(ctx context.Context, name string) error { return second(e.CopyOut(ctx, name)) },
		"Walk": func(ctx context.Context, name string) error {
			return search.Walk(ctx, e, name, search.WalkOptions{}, func(search.Entry) error { return nil })
		},
		"Grep": func(ctx context.Context, name string) error {
			return second(search.Grep(ctx, e, search.GrepOptions{Pattern: "x", Path: name},
				func(search.GrepMatch) error { return nil }))
		},
		"Glob": func(ctx context.Context, name string) error {
			return second(search.Glob(ctx, e, search.GlobOptions{Pattern: "*", Dir: name}))
		},
		"ReadFiles": func(ctx context.Context, name string) error {
			found, err := env.ReadFiles(ctx, e, []string{name}, 0)
			if err == nil {
				err = found[0].Err
			}
			return err
		},
	}
}

func TestSubdirNames(t *testing.T) {
	// The name that the inner environment gets; "!" if it is not called.
	type byName = map[string]string
	tests := map[string]struct {
		os, workDir, dir string
		want             string // the working directory
		names            byName
	}{
		"relative": {"linux", "/work", "sub", "/work/sub", byName{
			"a": "/work/sub/a", "./a/": "/work/sub/a/", "a/../b": "/work/sub/b", "a//b": "/work/sub/a/b",
			"..a":         "/work/sub/..a",
			"/work/sub/a": "/work/sub/a", "/work/./sub//a": "/work/sub/a", "a\nb": "/work/sub/a\nb",
			`..\a`:     `/work/sub/..\a`,
			"../sub/a": "/work/sub/a", "c:/a": "/work/sub/c:/a",
			"..": "!", "../x": "!", "a/../../x": "!", "/work": "!", "/work/subx": "!", "/work/sub/../x": "!",
			"/": "!", "/etc/passwd": "!", "../": "!",
		}},
		"absolute": {"linux", "/work", "/other/./dir/", "/other/dir", byName{
			"a":       "/other/dir/a",
			"/work/a": "!", "/other/dir/b": "/other/dir/b",
		}},
		"root": {"linux", "/work", "/", "/", byName{
			"a": "/a", "..": "!root", "/etc/x": "/etc/x",
			"../a": "/a",
		}},
		"the same": {"linux", "/work", ".", "/work", byName{"a": "/work/a", "..": "!"}},
		"no name":  {"linux", "/work", "", "/work", byName{"a": "/work/a", "..": "!"}},
		"case":     {"linux", "/work", "sub", "/work/sub", byName{"/work/SUB/a": "!"}},
		"windows": {"windows", "C:/work", `sub\deep`, "C:/work/sub/deep", byName{
			"a": "C:/work/sub/deep/a", `a\b`: "C:/work/sub/deep/a/b", `a\`: "C:/work/sub/deep/a/",
			`c:\WORK\Sub\deep\a`: "c:/WORK/Sub/deep/a", "C:/work/sub/deep/a": "C:/work/sub/deep/a",
			`..\x`: "!", `a\..\..\x`: "!", `C:\work\x`: "!", `D:\work\sub\deep\a`: "!", "D:a": "!",
			"C:a": "!", `\\server\share\a`: "!", `\a`: "!", "/a": "!", `\\?\C:\work\sub\deep\a`: "!",
		}},
		"drive": {"windows", "C:/work", `D:\`, "D:/", byName{
			"a": "D:/a", `D:\b`: "D:/b", `C:\a`: "!",
			`\a`: "!",
		}},
		"server": {
			"windows", "//server/share", "sub", "//server/share/sub",
			byName{
				"a": "//server/share/sub/a", `\\server\share\sub\b`: "//server/share/sub/b",
				`\\server\share\c`: "!", "/server/share/sub/b": "!",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inner := &names{info: env.Info{
				Backend: "b", OS: tt.os, WorkDir: tt.workDir,
				Shell: []string{"sh"},
			}}
			e := wrap.Subdir(inner, tt.dir)
			want := inner.info
			want.WorkDir = tt.want
			if diff := cmp.Diff(want, e.Info()); diff != "" {
				t.Errorf("Info (-want +got):\n%s", diff)
			}
			for method, do := range methods(e) {
				for given, want := range tt.names {
					if want == "!root" { // ".." of the root is the root
						if want = "/"; method == "Remove" {
							continue
						}
					}
					inner.seen = nil
					err := do(t.Context(), given)
					if want == "!" {
						checkOutside(t, method, given, err, inner)
						continue
					}
					if err != nil || !slices.Equal(inner.seen, []string{want}) {
						t.Errorf("%s(%q) calls %q, error %v", method, given, inner.seen, err)
					}
				}
			}
		})
	}
}

func checkOutside(t *testing.T, method, given string, err error, inner *names) {
	t.Helper()
	var pathErr *fs.PathError
	if !errors.Is(err, env.ErrOutside) || !errors.As(err, &pathErr) || pathErr.Path != given ||
		len(inner.seen) > 0 {
		t.Errorf("%s(%q) gives %v, calls %q", method, given, err, inner.seen)
	}
	var start *env.StartError
	if method == "Exec" && (!errors.As(err, &start) || pathErr.Op != "chdir") {
		t.Errorf("Exec in %q gives %v", given, err)
	}
}

// TestSubdirEmptyName calls every method with no name. Those that accept it get the working
// directory; the inner environment rejects it for the others.
func TestSubdirEmptyName(t *testing.T) {
	inner := &names{info: env.Info{OS: "linux", WorkDir: "/work"}}
	for method, do := range methods(wrap.Subdir(inner, "sub")) {
		inner.seen = nil
		err := do(t.Context(), "")
		want := ""
		switch method {
		case "Exec", "Walk", "Grep", "Glob":
			want = "/work/sub"
		}
		if err != nil || !slices.Equal(inner.seen, []string{want}) {
			t.Errorf(`%s("") calls %q, error %v`, method, inner.seen, err)
		}
	}
}

func TestSubdirIsNotRemoved(t *testing.T) {
	inner := &names{info: env.Info{OS: "linux", WorkDir: "/work"}}
	e := wrap.Subdir(inner, "sub")
	for _, name := range []string{".", "./", "/work/sub", "/work/sub/", "a/..", "../sub"} {
		if err := e.Remove(t.Context(), name, env.RemoveOptions{Recursive: true}); !errors.Is(err,
			fs.ErrInvalid) || len(inner.seen) > 0 {
			t.Errorf("Remove(%q) gives %v, calls %q", name, err, inner.seen)
		}
	}
	if err := e.Close(); err != nil || !slices.Equal(inner.seen, []string{"close"}) {
		t.Errorf("Close gives %v, calls %q", err, inner.seen)
	}
}

func TestSubdirOfSubdir(t *testing.T) {
	inner := &names{info: env.Info{OS: "linux", WorkDir: "/work"}}
	e := wrap.Subdir(wrap.Subdir(inner, "a"), "b")
	if _, err := e.Stat(t.Context(), "../x"); !errors.Is(err, env.ErrOutside) {
		t.Errorf("a name of the outer directory gives %v", err)
	}
	if _, err := e.Stat(t.Context(), "x"); err != nil || !slices.Equal(inner.seen,
		[]string{"/work/a/b/x"}) {
		t.Errorf("a name calls %q, error %v", inner.seen, err)
	}
	if _, err := wrap.Subdir(wrap.Subdir(inner, "a"), "../c").Stat(t.Context(), "x"); !errors.Is(err,
		env.ErrOutside) {
		t.Errorf("a directory outside of the outer one gives %v", err)
	}
}

func TestSubdirResults(t *testing.T) {
	inner := &names{info: env.Info{OS: "linux", WorkDir: "/work"}}
	e := wrap.Subdir(inner, "sub")
	for given, want := range map[string]string{
		"": "a", ".": "a", "x": "x/a", "x/": "x/a", "./x": "x/a", "/work/sub": "/work/sub/a",
		"/work/sub/x": "/work/sub/x/a",
	} {
		got := ""
		stats, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "p", Path: given},
			func(m search.GrepMatch) error { got = m.Name; return nil })
		if err != nil || got != want || stats.Files != 1 {
			t.Errorf("Grep in %q found %q, not %q: %+v, %v", given, got, want, stats, err)
		}
	}
	stop := errors.New("stop")
	if _, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "p"},
		func(search.GrepMatch) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the caller is %v", err)
	}
	found, err := env.ReadFiles(t.Context(), e, []string{"b", "../x", "/work/sub/c", "b"}, 0)
	if err != nil || len(found) != 4 {
		t.Fatalf("ReadFiles gives %+v, %v", found, err)
	}
	for i, want := range []string{
		"content of /work/sub/b", "", "content of /work/sub/c",
		"content of /work/sub/b",
	} {
		if string(found[i].Data) != want || (want == "") != errors.Is(found[i].Err, env.ErrOutside) {
			t.Errorf("file %d is %q, %v", i, found[i].Data, found[i].Err)
		}
	}
	if got := []string{found[0].Name, found[1].Name, found[2].Name}; !slices.Equal(got, []string{
		"b",
		"../x", "/work/sub/c",
	}) {
		t.Errorf("the names are %q", got)
	}
}

// TestSubdirFiles uses files of an environment without optional interfaces.
func TestSubdirFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a right that ordinary users of Windows lack")
	}
	inner := newScriptedEnv(t)
	inner.put(t, "secret", "needle above")
	inner.put(t, "sub/a", "needle a")
	inner.put(t, "sub/b/c", "needle c")
	inner.symlink(t, "../secret", "sub/symlink")
	e := wrap.Subdir(inner, "sub")
	var walked, found []string
	for _, root := range []string{"", ".", "b"} {
		if err := search.Walk(t.Context(), e, root, search.WalkOptions{},
			func(e search.Entry) error { walked = append(walked, e.Name); return nil }); err != nil {
			t.Error(err)
		}
	}
	all := []string{"a", "b", "b/c", "symlink"}
	if !slices.Equal(walked, slices.Concat(all, all, []string{"c"})) {
		t.Errorf("Walk found %q", walked)
	}
	_, err := search.Grep(t.Context(), e, search.GrepOptions{Pattern: "needle"},
		func(m search.GrepMatch) error { found = append(found, m.Name+": "+m.Text); return nil })
	if err != nil {
		t.Error(err)
	}
	if want := []string{"a: needle a", "b/c: needle c"}; !slices.Equal(found, want) {
		t.Errorf("Grep found %q", found)
	}
	entries, err := search.Glob(t.Context(), e, search.GlobOptions{Pattern: "**/c"})
	if err != nil || len(entries) != 1 || entries[0].Name != "b/c" {
		t.Errorf("Glob found %v, %v", entries, err)
	}
	if _, err := search.Glob(t.Context(), e, search.GlobOptions{Pattern: "../*"}); !errors.Is(err,
		search.ErrBadPattern) {
		t.Errorf("a pattern that leads out gives %v", err)
	}
	b, err := env.ReadFile(t.Context(), e, "symlink", 0)
	if err != nil || string(b) != "needle above" {
		t.Errorf("a symlink that leads out gives %q, %v", b, err)
	}
	if err := e.CopyIn(t.Context(), "b", tarOf("new", "x")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(inner.host("sub/b/new")); err != nil {
		t.Error(err)
	}
}

func TestSubdirConfines(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	inner.put(t, "a/b/f", "")
	var got *env.Confinement
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		got = cmd.Confine
		return env.Result{}, nil
	}
	exec := func(e env.Environment, confine *env.Confinement) *env.Confinement {
		got = nil
		cmd := env.Command{Argv: []string{"true"}, Confine: confine}
		if _, err := e.Exec(t.Context(), cmd); err != nil {
			t.Error(err)
		}
		return got
	}
	if c := exec(wrap.Subdir(inner, "a"), nil); c != nil {
		t.Errorf("an environment that cannot confine commands gets %+v", c)
	}
	inner.guarantees = []env.Guarantee{{Name: env.ConfinedCommands, Strength: env.Enforced}}
	root := inner.Info().WorkDir
	a, b := root+"/a", root+"/a/b"
	outer := wrap.Subdir(inner, "a")
	nested := wrap.Subdir(outer, "b")
	for _, test := range []struct {
		what  string
		e     env.Environment
		given *env.Confinement
		want  env.Confinement
	}{
		{"a directory", outer, nil, env.Confinement{Hide: root, Write: []string{a}}},
		{"one in it", nested, nil, env.Confinement{Hide: root, Write: []string{b}}},
		{"nothing", outer, &env.Confinement{}, env.Confinement{Hide: root, Read: []string{a}}},
		{
			"a part", outer, &env.Confinement{Write: []string{"b"}},
			env.Confinement{Hide: root, Read: []string{a}, Write: []string{b}},
		},
		{
			"a part with Hide", outer,
			&env.Confinement{Hide: ".", Read: []string{"b"}},
			env.Confinement{Hide: root, Read: []string{b}},
		},
		{"read-only", wrap.ReadOnly(outer, nil), nil, env.Confinement{Hide: root, Read: []string{a}}},
		{
			"below read-only", wrap.Subdir(wrap.ReadOnly(inner, nil), "a"), nil,
			env.Confinement{Hide: root, Read: []string{a}},
		},
	} {
		if diff := cmp.Diff(&test.want, exec(test.e, test.given)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
	for _, confine := range []env.Confinement{{Write: []string{"../c"}}, {Hide: "/etc"}} {
		_, err := outer.Exec(t.Context(), env.Command{Argv: []string{"true"}, Confine: &confine})
		if !errors.Is(err, env.ErrOutside) {
			t.Errorf("%+v: %v, want %v", confine, err, env.ErrOutside)
		}
	}
}
