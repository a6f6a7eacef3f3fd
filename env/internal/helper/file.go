package helper

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
)

// machines are the processors that a program may be for, by their names in the Go toolchain.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "386": elf.EM_386, "arm": elf.EM_ARM}

// Arch returns the processor that the program in a file is for, named as by the Go toolchain. It is an error if the
// program does not run on Linux without anything else.
func Arch(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s is no program for Linux: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fmt.Errorf("%s is no static program: it needs libraries that may not be there", path)
	}
	for arch, machine := range machines {
		if f.Machine == machine {
			return arch, nil
		}
	}
	return "", fmt.Errorf("%s is for a processor that no helper is for", path)
}

// Digest returns the SHA-256 of a file, in hexadecimal.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
