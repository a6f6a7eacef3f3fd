//go:build !linux

package verify

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

func inspect(context.Context, request) (document, error) {
	return document{}, fmt.Errorf("probe on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// bootID returns nothing: a Linux sandbox runs on another kernel.
func bootID() string { return "" }
