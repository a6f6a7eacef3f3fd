//go:build !linux && !darwin

package main

import "os"

// flushInput does nothing.
func flushInput(*os.File) {}
