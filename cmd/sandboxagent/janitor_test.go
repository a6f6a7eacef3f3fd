package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/k8s"
)

// TestLeftSessions has the lines that a program writes to its janitor.
func TestLeftSessions(t *testing.T) {
	for lines, want := range map[string][]string{
		"":                        nil,
		"+a\n":                    {"a"},
		"+a\n-a\n":                nil,
		"+a\n+b\n+c\n-b\n":        {"a", "c"},
		"+a\n-a\n+a\nother\n-b\n": {"a"},
	} {
		if got := leftSessions(strings.NewReader(lines)); !slices.Equal(got, want) {
			t.Errorf("after %q %q are left, not %q", lines, got, want)
		}
	}
}

// TestSharedCluster has the environments of a batch, which share a connection and a janitor, until
// the cluster rejects the credentials. The last user of the old connection closes it.
func TestSharedCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(file, []byte(`
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: x, user: {token: x}}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	shared := &sharedCluster{}
	defer shared.close() //nolint:errcheck // nothing was opened
	connect := func() (*usedCluster, func() error) {
		u, end, err := shared.connect(t.Context(), k8s.Address{Kubeconfig: file})
		if err != nil {
			t.Fatal(err)
		}
		return u, end
	}
	closed := func(u *usedCluster) bool {
		_, err := u.Open(t.Context(), k8s.Config{Image: "x"})
		return errors.Is(err, fs.ErrClosed)
	}
	first, endFirst := connect()
	second, endSecond := connect()
	shared.replace(first)
	third, endThird := connect()
	if first != second || first == third || first.janitor == nil || first.janitor != third.janitor {
		t.Errorf("%p, %p and %p with the janitors %p and %p", first, second, third, first.janitor,
			third.janitor)
	}
	shared.replace(first) // by another one that was rejected
	for _, tt := range []struct {
		end    func() error
		closed bool
	}{{endFirst, false}, {endSecond, true}, {endThird, true}} {
		if err := tt.end(); err != nil || closed(first) != tt.closed || closed(third) {
			t.Errorf("closed: %t, %t, %v", closed(first), closed(third), err)
		}
	}
}
