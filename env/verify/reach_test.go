package verify

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReach tries an address that answers and one that does not.
func TestReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if got, ok := reach(t.Context(), []string{"127.0.0.1:1", address}); !ok || got != address {
		t.Errorf("%q, %v", got, ok)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, ok := reach(t.Context(), []string{"127.0.0.1:1", address}); ok {
		t.Errorf("%q answers", got)
	}
}

func TestNameServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	const text = "search a\nnameserver 10.0.0.1\n# nameserver 10.0.0.2\nnameserver fd00::1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.1:53", "[fd00::1]:53"}
	if got := nameServers(file); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := nameServers(file + "-missing"); got != nil {
		t.Errorf("%q without a file", got)
	}
}
