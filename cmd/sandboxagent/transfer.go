package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	envtransfer "github.com/sandboxagent/sandboxagent/env/transfer"
)

// transfer is a file or directory to upload or download.
type transfer struct{ source, target string }

// parseTransfers reads --upload and --download.
func (s *environmentSettings) parseTransfers(c *cli.Context) error {
	for _, text := range c.StringSlice("upload") {
		t, err := parseTransfer("upload", text)
		if err != nil {
			return err
		}
		if _, err := os.Stat(t.source); err != nil {
			return usagef("--upload: %s", err)
		}
		s.uploads = append(s.uploads, t)
	}
	for _, text := range c.StringSlice("download") {
		t, err := parseTransfer("download", text)
		if err != nil {
			return err
		}
		if path.Clean(t.source) == "/" {
			return usagef("--download %s: the root directory cannot be copied; name a file "+
				"or directory in it", text)
		}
		s.downloads = append(s.downloads, transfer{source: t.source, target: cmp.Or(t.target, ".")})
	}
	return nil
}

// parseTransfer reads SOURCE[:TARGET].
func parseTransfer(flag, text string) (transfer, error) {
	source, target, _ := strings.Cut(text, ":")
	if flag == "upload" { // a name of Windows may have a colon
		if i := strings.LastIndexByte(text, ':'); i > 1 {
			source, target = text[:i], text[i+1:]
		}
	}
	if source == "" {
		return transfer{}, usagef("--%s %q is not of the form SOURCE or SOURCE:TARGET", flag, text)
	}
	return transfer{source, target}, nil
}

// isWork reports whether an upload is for the working directory.
func (t transfer) isWork(info env.Info) bool {
	target := path.Clean(t.target)
	if !path.IsAbs(target) {
		target = path.Join(info.WorkDir, target)
	}
	return target == info.WorkDir || strings.HasPrefix(target, info.WorkDir+"/")
}

// upload copies the files of those uploads into an environment that meet the condition.
func (s environmentSettings) upload(
	ctx context.Context, e env.Environment, notify func(string), meets func(transfer, env.Info) bool,
) error {
	for _, t := range s.uploads {
		if !meets(t, e.Info()) {
			continue
		}
		if err := t.upload(ctx, e, notify); err != nil {
			return err
		}
	}
	return nil
}

// upload copies files into an environment.
func (t transfer) upload(ctx context.Context, e env.Environment, notify func(string)) error {
	err := envtransfer.Upload(ctx, e, t.source, t.target,
		envtransfer.UploadOptions{SkipRepositories: func(name string) {
			notify(fmt.Sprintf("--upload: %q is skipped: the directories of version control systems "+
				"may have credentials; name it explicitly to upload it",
				filepath.Join(t.source, filepath.FromSlash(name))))
		}})
	if err != nil {
		return fmt.Errorf("--upload: %w", err)
	}
	return nil
}

// fetch downloads files from an environment. It ignores the end of ctx, which may have ended the
// command.
func (s environmentSettings) fetch(ctx context.Context, w *environment) error {
	if len(s.downloads) == 0 {
		return nil
	}
	ctx, e, stop := watch(ctx, w.plain)
	defer stop()
	var errs []error
	for _, t := range s.downloads {
		if err := t.download(ctx, e, w.notify); err != nil {
			errs = append(errs, fmt.Errorf("--download %s: %w", t.source, err))
		}
	}
	return errors.Join(errs...)
}

func (t transfer) download(ctx context.Context, e env.Environment, notify func(string)) error {
	info, err := e.Stat(ctx, t.source)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "read", Path: t.source, Err: env.ErrNotRegular}
	}
	dir, name := path.Split(path.Clean(t.source))
	names := []string{name}
	if name == ".." {
		dir, names = t.source, nil
	}
	return envtransfer.Download(ctx, e, cmp.Or(dir, "."), names, t.target,
		envtransfer.DownloadOptions{SkipRepositories: func(name string) {
			notify(fmt.Sprintf("--download: %q is skipped: the directories of version control systems "+
				"can make them run commands",
				filepath.Join(t.target, filepath.FromSlash(name))))
		}})
}
