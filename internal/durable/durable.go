// Package durable keeps files and their names over a crash of the machine.
package durable

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// File makes a file or directory durable where its file system can do that.
func File(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// Dir makes the names in a directory durable. Windows has no such call and needs none.
func Dir(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(File(f), f.Close())
}
