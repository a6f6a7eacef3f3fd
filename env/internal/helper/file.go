package helper

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// machines are the processors of Linux that a program may be for.
var machines = []struct {
	arch    string
	machine elf.Machine
	class   elf.Class
	data    elf.Data
}{
	{"amd64", elf.EM_X86_64, elf.ELFCLASS64, elf.ELFDATA2LSB},
	{"arm64", elf.EM_AARCH64, elf.ELFCLASS64, elf.ELFDATA2LSB},
	{"386", elf.EM_386, elf.ELFCLASS32, elf.ELFDATA2LSB},
	{"arm", elf.EM_ARM, elf.ELFCLASS32, elf.ELFDATA2LSB},
	{"riscv64", elf.EM_RISCV, elf.ELFCLASS64, elf.ELFDATA2LSB},
	{"loong64", elf.EM_LOONGARCH, elf.ELFCLASS64, elf.ELFDATA2LSB},
	{"ppc64le", elf.EM_PPC64, elf.ELFCLASS64, elf.ELFDATA2LSB},
	{"s390x", elf.EM_S390, elf.ELFCLASS64, elf.ELFDATA2MSB},
}

// Arch returns the processor of the static Linux program in a file, named as by the Go toolchain.
// Any other file is an error.
func Arch(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s is not a program for Linux: %w", display(path), err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fmt.Errorf("%s is not a static program (build it with CGO_ENABLED=0)", display(path))
	}
	for _, m := range machines {
		if f.Machine == m.machine && f.Class == m.class && f.Data == m.data {
			return m.arch, nil
		}
	}
	return "", fmt.Errorf("%s is for an unknown processor: %v", display(path), f.Machine)
}

// RunningProgram is the file of the running program on Linux, also after another file got its name.
const RunningProgram = "/proc/self/exe"

// display returns the name of a program for messages.
func display(path string) string {
	if path == RunningProgram {
		return "the running program"
	}
	return path
}

// File returns the program in a file as the helper for a platform; args make it serve as one. For
// Linux it must be a static program for the processor; for another system the platform must be that
// of this process.
func File(path, goos, goarch string, args ...string) (*Program, error) {
	switch {
	case goos == "linux":
		arch, err := Arch(path)
		if err != nil {
			return nil, err
		}
		if arch != goarch {
			return nil, fmt.Errorf("%s is a program for linux/%s, not for linux/%s", display(path), arch,
				goarch)
		}
	case goos != runtime.GOOS || goarch != runtime.GOARCH:
		return nil, fmt.Errorf("%s cannot be validated as a program for %s/%s", display(path), goos,
			goarch)
	}
	digest, err := Digest(path)
	if err != nil {
		return nil, err
	}
	return &Program{
		Name: prefix + goos + "-" + goarch + "-" + digest, Digest: digest, Args: args,
		Open: func() (io.ReadCloser, error) { return os.Open(path) },
	}, nil
}

// digest is the digest that a file had with a size and a time of change.
type digest struct {
	hex     string
	size    int64
	changed time.Time
}

// digests are those of the files that this process has read, by path.
var digests sync.Map

// Digest returns the SHA-256 of a file in hexadecimal. It reads a file again only when its size or
// its time of change is another one.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if v, ok := digests.Load(path); ok {
		if d, ok := v.(digest); ok && d.size == info.Size() && d.changed.Equal(info.ModTime()) {
			return d.hex, nil
		}
	}
	s := newSum()
	if _, err := io.Copy(s, f); err != nil {
		return "", err
	}
	digests.Store(path, digest{s.hex(), info.Size(), info.ModTime()})
	return s.hex(), nil
}
