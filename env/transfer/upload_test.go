package transfer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/treefake"
	"github.com/sandboxagent/sandboxagent/env/transfer"
)

// needSymlinks skips where an ordinary user cannot make links.
func needSymlinks(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on windows")
	}
}

func TestUploadDownload(t *testing.T) {
	needSymlinks(t)
	defer goleak.VerifyNone(t)
	src := t.TempDir()
	tree := map[string]treefake.File{
		"a": {Content: "a\r\n\x00"}, "run": {
			Content:    "r",
			Executable: true,
		}, "d/e/f": {Content: strings.Repeat("long", 1<<20)}, "d/l": {Target: "../a"},
		"empty": {},
	}
	treefake.Write(t, src, tree)
	fake := treefake.New(t, t.TempDir())
	if err := transfer.Upload(t.Context(), fake, src, "in/to", transfer.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree, treefake.Read(t, filepath.Join(fake.Dir, "in/to"))); diff != "" {
		t.Errorf("uploaded (-want +got):\n%.2000s", diff)
	}
	dst := filepath.Join(t.TempDir(), "new", "directory")
	if err := transfer.Download(t.Context(), fake, "in/to", nil, dst,
		transfer.DownloadOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree, treefake.Read(t, dst)); diff != "" {
		t.Errorf("downloaded (-want +got):\n%.2000s", diff)
	}
	part := t.TempDir()
	if err := transfer.Download(t.Context(), fake, "in", []string{"to/d", "to/a"}, part,
		transfer.DownloadOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]treefake.File{
		"to/a": tree["a"], "to/d/e/f": tree["d/e/f"],
		"to/d/l": tree["d/l"],
	}
	if diff := cmp.Diff(want, treefake.Read(t, part)); diff != "" {
		t.Errorf("downloaded by name (-want +got):\n%.2000s", diff)
	}
}

func TestUploadSources(t *testing.T) {
	needSymlinks(t)
	src := t.TempDir()
	treefake.Write(t, src, map[string]treefake.File{
		"directory/x": {Content: "x"}, "directory/y/z": {Content: "z"}, "file": {
			Content:    "f",
			Executable: true,
		},
		"tofile": {Target: "file"}, "todir": {Target: "directory"}, "dangling": {Target: "nowhere"},
		"outside/l": {Target: "/etc/passwd"},
	})
	tests := []struct {
		name, src string
		names     []string
		want      map[string]treefake.File
		err       error
	}{
		{"file", "file", nil, map[string]treefake.File{"file": {Content: "f", Executable: true}}, nil},
		{"link to a file", "tofile", nil, map[string]treefake.File{"tofile": {
			Content:    "f",
			Executable: true,
		}}, nil},
		{"link to a directory", "todir", nil, map[string]treefake.File{
			"x":   {Content: "x"},
			"y/z": {Content: "z"},
		}, nil},
		{"names", "directory", []string{"y"}, map[string]treefake.File{"y/z": {Content: "z"}}, nil},
		{"link that leaves", "outside", nil, map[string]treefake.File{"l": {Target: "/etc/passwd"}}, nil},
		{"missing", "nope", nil, nil, fs.ErrNotExist},
		{"dangling link", "dangling", nil, nil, fs.ErrNotExist},
		{"missing name", "directory", []string{"q"}, nil, fs.ErrNotExist},
		{"name that leaves", "directory", []string{"../file"}, nil, env.ErrEscapes},
		{
			"name through a link that leaves", "outside",
			[]string{"l"},
			map[string]treefake.File{"l": {Target: "/etc/passwd"}},
			nil,
		},
		{"names of a file", "file", []string{"x"}, nil, env.ErrNotDir},
		{"device", os.DevNull, nil, nil, env.ErrNotRegular},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			fake := treefake.New(t, t.TempDir())
			from := tt.src
			if !filepath.IsAbs(from) {
				from = filepath.Join(src, from)
			}
			err := transfer.Upload(t.Context(), fake, from, "to", transfer.UploadOptions{Names: tt.names})
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if tt.err != nil {
				return
			}
			if diff := cmp.Diff(tt.want, treefake.Read(t, filepath.Join(fake.Dir, "to"))); diff != "" {
				t.Errorf("uploaded (-want +got):\n%s", diff)
			}
		})
	}
}

// An error of CopyIn ends the packer, and an error of the packer ends CopyIn.
func TestUploadEndsOnErrors(t *testing.T) {
	src := t.TempDir()
	treefake.Write(t, src, map[string]treefake.File{"big": {Content: strings.Repeat("x", 4<<20)}})
	boom := errors.New("boom")

	t.Run("environment refuses", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		c := copierFuncs{in: func(context.Context, string, io.Reader) error { return boom }}
		if err := transfer.Upload(t.Context(), c, src, "d", transfer.UploadOptions{}); !errors.Is(err,
			boom) {
			t.Errorf("got %v, want the environment's error", err)
		}
	})
	t.Run("environment stops in the middle", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		c := copierFuncs{in: func(_ context.Context, _ string, r io.Reader) error {
			_, err := io.CopyN(io.Discard, r, 1<<20)
			return errors.Join(err, boom)
		}}
		if err := transfer.Upload(t.Context(), c, src, "d", transfer.UploadOptions{}); !errors.Is(err,
			boom) {
			t.Errorf("got %v, want the environment's error", err)
		}
	})
	t.Run("environment does not read to the end", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		c := copierFuncs{in: func(_ context.Context, _ string, r io.Reader) error {
			_, err := tar.NewReader(r).Next()
			return err
		}}
		if err := transfer.Upload(t.Context(), c, src, "d", transfer.UploadOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		c := copierFuncs{in: func(_ context.Context, _ string, r io.Reader) error {
			cancel(boom)
			_, err := io.Copy(io.Discard, r)
			return err
		}}
		err := transfer.Upload(ctx, c, src, "d", transfer.UploadOptions{})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, boom) {
			t.Errorf("got %v, want context.Canceled and its cause", err)
		}
	})
}

type copierFuncs struct {
	in  func(ctx context.Context, dir string, archive io.Reader) error
	out func(ctx context.Context, dir string, names ...string) (io.ReadCloser, error)
}

func (c copierFuncs) CopyIn(ctx context.Context, dir string, archive io.Reader) error {
	return c.in(ctx, dir, archive)
}

func (c copierFuncs) CopyOut(
	ctx context.Context, dir string, names ...string,
) (io.ReadCloser, error) {
	return c.out(ctx, dir, names...)
}

// Download uses the strictest form of tartree.Unpack, whose tests have each attack.
func TestDownloadFromHostileEnvironment(t *testing.T) {
	entries := func(hs ...tar.Header) []byte {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for _, h := range hs {
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			// The header suffices for the refusal.
			_, _ = io.WriteString(tw, strings.Repeat("x", int(min(h.Size, 10))))
		}
		_ = tw.Close()
		return buf.Bytes()
	}
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o4755}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	whole := entries(file("a", 3), file("b", 3))
	tests := []struct {
		name    string
		archive []byte
		opts    transfer.DownloadOptions
		err     error
	}{
		{"parent", entries(file("../canary", 1)), transfer.DownloadOptions{}, env.ErrEscapes},
		{"absolute", entries(file("/tmp/canary", 1)), transfer.DownloadOptions{}, env.ErrEscapes},
		{"link out", entries(link("l", "../canary")), transfer.DownloadOptions{}, env.ErrEscapes},
		{
			"link out, then through", entries(link("l", ".."), file("l/canary", 1)),
			transfer.DownloadOptions{},
			env.ErrEscapes,
		},
		{
			"hard link out", entries(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../canary"}),
			transfer.DownloadOptions{},
			env.ErrEscapes,
		},
		{"bytes", whole, transfer.DownloadOptions{MaxBytes: 5}, env.ErrTreeTooLarge},
		{"entries", whole, transfer.DownloadOptions{MaxEntries: 1}, env.ErrTreeTooLarge},
		{"too large by default", entries(tar.Header{
			Typeflag: tar.TypeReg, Name: "a",
			Size: transfer.DefaultMaxBytes + 1,
		}), transfer.DownloadOptions{}, env.ErrTreeTooLarge},
		{"cut off", whole[:1024], transfer.DownloadOptions{}, io.ErrUnexpectedEOF},
		{"within limits", whole, transfer.DownloadOptions{MaxBytes: 6, MaxEntries: 2}, nil},
		{"no limits", whole, transfer.DownloadOptions{MaxBytes: -1, MaxEntries: -1}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			base := t.TempDir()
			canary := filepath.Join(base, "canary")
			if err := os.WriteFile(canary, []byte("alive"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(tt.archive)), nil
			}}
			dst := filepath.Join(base, "dst")
			if err := transfer.Download(t.Context(), c, "d", nil, dst, tt.opts); !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			got := treefake.Read(t, base)
			for name, f := range got {
				if name != "canary" && name != "dst/a" && name != "dst/b" {
					t.Errorf("left behind: %s %+v", name, f)
				}
			}
			if got["canary"].Content != "alive" {
				t.Errorf("the canary is %+v", got["canary"])
			}
		})
	}
}

func TestDownloadErrors(t *testing.T) {
	defer goleak.VerifyNone(t)
	src := t.TempDir()
	treefake.Write(t, src, map[string]treefake.File{"big": {Content: strings.Repeat("x", 4<<20)}})
	fake := treefake.New(t, src)
	if err := transfer.Download(t.Context(), fake, "", []string{"nope"}, t.TempDir(),
		transfer.DownloadOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing name: got %v, want fs.ErrNotExist", err)
	}
	if err := transfer.Download(t.Context(), fake, "nope", nil, t.TempDir(),
		transfer.DownloadOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: got %v, want fs.ErrNotExist", err)
	}
	if err := transfer.Download(t.Context(), fake, "", nil, filepath.Join(src, "big"),
		transfer.DownloadOptions{}); err == nil {
		t.Error("a file as destination was accepted")
	}
	// A download that ends early closes the stream, so that the sender ends too.
	if err := transfer.Download(t.Context(), fake, "", nil, t.TempDir(),
		transfer.DownloadOptions{MaxBytes: 1}); !errors.Is(err, env.ErrTreeTooLarge) {
		t.Errorf("too large: got %v, want ErrTreeTooLarge", err)
	}
	boom := errors.New("exit status 1")
	c := copierFuncs{out: func(context.Context, string, ...string) (io.ReadCloser, error) {
		return failingClose{bytes.NewReader(treefake.Tar(nil)), boom}, nil
	}}
	if err := transfer.Download(t.Context(), c, "", nil, t.TempDir(),
		transfer.DownloadOptions{}); !errors.Is(err, boom) {
		t.Errorf("got %v, want the error of Close", err)
	}
}

type failingClose struct {
	io.Reader
	err error
}

func (f failingClose) Close() error { return f.err }
