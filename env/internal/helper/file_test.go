package helper

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestArchOfNoHelper(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		text:                         "is not a program for Linux",
		filepath.Join(dir, "nobody"): "is not a program for Linux",
		"/bin/sh":                    "is not a static program",
	} {
		if runtime.GOOS != "linux" && name == "/bin/sh" {
			continue
		}
		if arch, err := Arch(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q, %v", name, arch, err)
		}
	}
}
