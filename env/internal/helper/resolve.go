package helper

import (
	"context"
	"errors"
)

// Source names the programs that may serve as helper besides the embedded ones. The zero value
// names none.
type Source struct {
	// Binary is a file with a helper. Nothing else is used if it is set.
	Binary string
	// Program is a program that serves as a helper, such as the running one. It is used where no
	// helper is embedded and it runs on the platform.
	Program string
	// Args go before all other arguments of Binary and Program.
	Args []string
	// NoBuild keeps the Go toolchain from building a helper.
	NoBuild bool
	// Cache is the directory for helpers that were built; empty means the user's cache directory.
	Cache string
}

// Resolve returns the helper for a platform, which is named as by the Go toolchain, in the order of
// the package comment. If it finds none the error is a *MissingError. Building takes up to 5
// minutes, less with an earlier end of ctx.
func (s Source) Resolve(ctx context.Context, goos, goarch string) (*Program, error) {
	if s.Binary != "" {
		return File(s.Binary, goos, goarch, s.Args...)
	}
	h, err := Find(goos, goarch)
	var missing *MissingError
	if !errors.As(err, &missing) {
		return h, err
	}
	if s.Program != "" {
		if h, err := File(s.Program, goos, goarch, s.Args...); err == nil {
			return h, nil
		}
	}
	if s.NoBuild {
		return nil, missing
	}
	path, err := thisModule(s.Cache).build(ctx, goos, goarch)
	if err != nil {
		missing.Err = err
		return nil, missing
	}
	return File(path, goos, goarch)
}
