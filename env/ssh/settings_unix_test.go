//go:build unix

package ssh

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestFilesThatAreNone(t *testing.T) {
	m := newPlace(t)
	pipe := m.dot("pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for field, target := range map[string]Target{
		"config":      {ConfigFile: pipe},
		"known-hosts": {KnownHosts: pipe, AcceptNew: true},
		"identity":    {Identities: []string{pipe}},
	} {
		t.Run(field, func(t *testing.T) {
			target.Host = "me@h"
			var bad *ConfigError
			if err := target.Check(); !errors.As(err, &bad) || bad.Field != field || !strings.Contains(bad.Reason, "not a regular file") {
				t.Errorf("got the error %v", err)
			}
		})
	}
	m.write(t, "config", "Include pipe")
	if err := m.connect(t, Target{Host: "me@h"}); err == nil || !strings.Contains(err.Error(), pipe) {
		t.Errorf("got the error %v, want one that names the pipe", err)
	}
}
