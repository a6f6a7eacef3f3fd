package helper

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Source names the programs that may serve as helper besides the embedded ones: it is the internal
// form of remote.Helper, whose fields have comments.
type Source struct {
	Binary, Program string
	Args            []string
	NoBuild         bool
	Cache           string
}

// Resolve returns the helper for a platform, which is named as by the Go toolchain, in the order of
// the package comment. If it finds none the error is a *MissingError. Building takes up to 5
// minutes, less with an earlier end of ctx.
func (s Source) Resolve(ctx context.Context, goos, goarch string) (*Program, error) {
	// A host or an image names it, and it becomes a part of file names and of a command in a message.
	if !isName(goos) || !isName(goarch) {
		return nil, fmt.Errorf("no helper is for a platform named %.80q", goos+"/"+goarch)
	}
	if s.Binary != "" {
		return File(s.Binary, goos, goarch, s.Args...)
	}
	h, err := Find(goos, goarch)
	var missing *MissingError
	if !errors.As(err, &missing) {
		return h, err
	}
	if s.Program != "" {
		h, err := File(s.Program, goos, goarch, s.Args...)
		if err == nil {
			return h, nil
		}
		missing.Errs = append(missing.Errs, fmt.Errorf("use the running program: %w", err))
	}
	if s.NoBuild {
		return nil, missing
	}
	path, err := thisModule(s.Cache).build(ctx, goos, goarch)
	if err != nil {
		missing.Errs = append(missing.Errs, fmt.Errorf("build one: %w", err))
		return nil, missing
	}
	return File(path, goos, goarch)
}

// isName reports whether text may name an operating system or a processor.
func isName(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
