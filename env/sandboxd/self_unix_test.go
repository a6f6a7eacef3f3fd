//go:build unix

package sandboxd

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestSelf starts this program as the helper. Other processes of it are no helpers.
func TestSelf(t *testing.T) {
	self := Self()
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string // their start
	}{
		{[]string{"help"}, exitOK, usageText, ""},
		{[]string{"--help"}, exitOK, usageText, ""},
		{[]string{"serve", "-h"}, exitOK, usageText, ""},
		{nil, exitUsage, "", usageText},
		{[]string{"serve", "--none"}, exitUsage, "", "sandboxd: flag provided but not defined"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), self.Program, append(self.Args, tt.args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != tt.code ||
			!strings.HasPrefix(stdout.String(), tt.stdout) || tt.stdout == "" && stdout.Len() > 0 ||
			!strings.HasPrefix(stderr.String(), tt.stderr) {
			t.Errorf("%q: exit code %d\n%s%s", tt.args, code, &stdout, &stderr)
		}
	}
}
