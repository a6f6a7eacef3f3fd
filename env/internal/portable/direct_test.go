package portable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// disk is a way to files that needs no shells: they are on this machine.
type disk struct {
	root   string // in front of all names
	opened atomic.Int32
	wrote  atomic.Int32
	fail   error // of all writes, which then say nothing else
}

// Open implements portable.Files.
func (d *disk) Open(_ context.Context, name string) (io.ReadCloser, error) {
	d.opened.Add(1)
	return os.Open(d.root + name)
}

// Write implements portable.Files.
func (d *disk) Write(_ context.Context, name string, r io.Reader) (int64, error) {
	f, err := os.OpenFile(d.root+name, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	defer f.Close() //nolint:errcheck // What was written counts.
	d.wrote.Add(1)
	n, err := io.Copy(f, r)
	if err != nil && d.fail != nil {
		err = d.fail
	}
	return n, err
}

// TestContractWithKeeper runs the conformance suite with what places that outlive their client, and have another way for
// files, have in addition.
func TestContractWithKeeper(t *testing.T) {
	k := kinds()[0]
	envtest.Run(t, envtest.Options{
		New: func(t *testing.T) env.Environment {
			return k.open(t, func(cfg *portable.Config) { cfg.TTL, cfg.Files = time.Minute, new(disk) })
		},
		Known: portable.Known(), NoTerminals: true, Small: true,
	})
}

// TestFiles moves content past the shells, and through them where the other way leads elsewhere.
func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for name, d := range map[string]*disk{"right": {}, "elsewhere": {root: t.TempDir()}} {
			e := k.open(t, func(cfg *portable.Config) { cfg.Files = d })
			for _, size := range []int{1 << 20, 3 << 20, 5<<20 + 7} {
				data := bytes.Repeat([]byte("\x00%\\'-\n\xff"), size/7)
				if _, err := e.WriteFile(t.Context(), "file", io.MultiReader(bytes.NewReader(data)), env.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				if got, err := env.ReadFile(t.Context(), e, "file", 64<<20); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d of %d bytes are read, error %v", name, len(got), len(data), err)
				}
			}
			// One file is opened to try it.
			if opened, wrote := d.opened.Load(), d.wrote.Load(); d.root == "" && (opened != 2 || wrote != 1) || d.root != "" && (opened != 1 || wrote != 0) {
				t.Errorf("%s: %d files were opened, %d written", name, opened, wrote)
			}
			if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
				t.Errorf("%s: the folder holds %v, error %v", name, entries, err)
			}
		}
	})
}

// TestFilesFullDisk writes more than there is room for, past the shells, which does not say why it fails.
func TestFilesFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no small file system: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() }) //nolint:noctx // The test is over.
	e := kinds()[0].open(t, func(cfg *portable.Config) { cfg.Dir, cfg.Files = dir, &disk{fail: errors.New("failure")} })
	if _, err := e.WriteFile(t.Context(), "file", strings.NewReader(strings.Repeat("x", 8<<20)), env.WriteOptions{}); !errors.Is(err, env.ErrNoSpace) {
		t.Errorf("error %v, want ErrNoSpace", err)
	}
	if entries, err := e.ReadDir(t.Context(), "."); err != nil || len(entries) != 0 {
		t.Errorf("the folder holds %v, error %v", entries, err)
	}
}

// TestNoise starts shells behind something that prints on both outputs, and takes its time.
func TestNoise(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		command := k.command(t)
		script := filepath.Join(t.TempDir(), "login")
		noise := "echo welcome; echo 0123456789abcdef0123456789abcdef e 0 0; head -c 300000 /dev/urandom; head -c 300000 /dev/zero >&2; sleep 0.2; printf 'no end'; printf 'no end' >&2\n"
		if err := os.WriteFile(script, []byte(noise+`exec "$@"`), 0o700); err != nil {
			t.Fatal(err)
		}
		e := k.open(t, func(cfg *portable.Config) {
			cfg.TTL = time.Minute
			cfg.Start = func(context.Context) (portable.Shell, error) {
				c := command()
				c.Args = append([]string{c.Args[0], "/bin/sh", script}, c.Args[1:]...)
				s, err := startProcess(c)
				s.Noisy = true
				return s, err
			}
		})
		if got := output(t, e, "echo on"); got != "on\n" {
			t.Errorf("printed %q", got)
		}
		if got, err := env.ReadFile(t.Context(), e, "/etc/passwd", 0); err != nil || !bytes.Contains(got, []byte("root")) {
			t.Errorf("read %q, error %v", got, err)
		}
	})
}

// TestNoShell starts what is no shell.
func TestNoShell(t *testing.T) {
	k := kinds()[0]
	command := k.command(t)
	for what, tt := range map[string]struct {
		script, want string
		patience     time.Duration
	}{
		"says no":              {"echo sorry, we are closed; exit 1", "sorry, we are closed", time.Minute},
		"says a lot":           {"exec cat /dev/zero", "more than", time.Minute},
		"says a lot of errors": {"cat /dev/zero >&2; :", "more than", time.Minute},
		"on one only":          {"echo welcome; exec sh 2>/dev/null", "no shell answers", 4 * time.Second},
		"waits":                {"echo your password has expired; exec sleep 60", "your password has expired", 4 * time.Second},
	} {
		start := func(context.Context) (portable.Shell, error) {
			c := command()
			c.Args = []string{c.Args[0], "/bin/sh", "-c", tt.script}
			s, err := startProcess(c)
			s.Noisy = true
			return s, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
		_, err := portable.New(ctx, portable.Config{Start: start})
		cancel()
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", what, err, tt.want)
		}
	}
}

// TestStartCancelled starts shells in a way that is told of the end of the context, and does not say why it ended.
func TestStartCancelled(t *testing.T) {
	why := errors.New("enough")
	for what, start := range map[string]func(context.Context) error{
		"the end": func(ctx context.Context) error { return fmt.Errorf("nobody there: %w", ctx.Err()) },
		"all": func(ctx context.Context) error {
			return fmt.Errorf("nobody there: %w: %w", ctx.Err(), context.Cause(ctx))
		},
		"another word": func(context.Context) error { return io.ErrUnexpectedEOF },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := portable.New(ctx, portable.Config{Start: func(ctx context.Context) (portable.Shell, error) {
			cancel(why)
			return portable.Shell{}, start(ctx)
		}})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || strings.Count(err.Error(), why.Error()) != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// quitter is a way to files that says of a call that it cuts off only why.
type quitter struct {
	disk
	quit func() error
}

func (q *quitter) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasSuffix(name, "/large") {
		return nil, q.quit()
	}
	return q.disk.Open(ctx, name)
}

// TestCutMeanwhile cancels calls while a large file is opened past the shells, and while the loss of a shell is looked into.
func TestCutMeanwhile(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	quit := func() error { cancel(why); return why }
	e := kinds()[0].open(t, func(cfg *portable.Config) { cfg.Files = &quitter{quit: quit} })
	if err := os.WriteFile(filepath.Join(e.Info().WorkDir, "large"), make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(ctx, "large"); !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("a large file: %v", err)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	var broken atomic.Bool
	e = kinds()[0].open(t, func(cfg *portable.Config) {
		start := cfg.Start
		cfg.Start = func(ctx context.Context) (portable.Shell, error) {
			if broken.Load() {
				return portable.Shell{}, io.ErrUnexpectedEOF
			}
			return start(ctx)
		}
		cfg.Gone = func(context.Context, error) error { return fmt.Errorf("%w: %w", env.ErrGone, quit()) }
	})
	broken.Store(true)
	if _, err := e.Stat(ctx, "."); !errors.Is(err, why) || !errors.Is(err, context.Canceled) || errors.Is(err, env.ErrGone) {
		t.Errorf("a shell that is lost: %v", err)
	}
}
