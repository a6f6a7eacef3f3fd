//go:build !linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Take does what q asks for.
func Take(context.Context, Request) (Document, error) {
	return Document{}, fmt.Errorf("probe on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Namespaces returns nothing.
func Namespaces() map[string]uint64 { return nil }

// Boot returns nothing: a sandbox for Linux is on another machine.
func Boot() string { return "" }
