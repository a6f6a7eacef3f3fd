package verify

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestResolve queries name servers that deny the name, do not answer, or do not exist.
func TestResolve(t *testing.T) {
	listen := func(answer bool) string {
		t.Helper()
		l, err := net.ListenPacket("udp4", "127.0.0.1:0") //nolint:noctx // it does not wait
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			b := make([]byte, 512)
			for {
				n, from, err := l.ReadFrom(b)
				if err != nil {
					return
				}
				if answer && n > 3 {
					b[2], b[3] = 0x81, 0x83 // the name does not exist
					_, _ = l.WriteTo(b[:n], from)
				}
			}
		}()
		return l.LocalAddr().String()
	}
	for name, test := range map[string]struct {
		server, want string
	}{
		"absent":       {"127.0.0.1:1", outcomeNoAnswer},
		"no such name": {listen(true), outcomeOK},
		"silent":       {listen(false), "timeout"},
	} {
		limit := time.Minute
		if name == "silent" {
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, test.server)
		}
		r := &net.Resolver{PreferGo: true, Dial: dial}
		if got := resolve(ctx, r, "example.com."); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		cancel()
	}
}

// TestCalls makes the system calls without a filter: none succeeds, none is refused.
func TestCalls(t *testing.T) {
	for _, call := range filteredCalls() {
		got := tryCall(call)
		if got == outcomeOK && call != "personality" && call != "userfaultfd" ||
			strings.HasPrefix(got, "unknown") {
			t.Errorf("%s: %q", call, got)
		}
	}
	for _, family := range socketFamilies() {
		if got := tryFamily(family); strings.HasPrefix(got, "unknown") {
			t.Errorf("%s: %q", family, got)
		}
	}
}

func TestNames(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	socket, file := filepath.Join(dir, "socket"), filepath.Join(dir, "file")
	link, none := filepath.Join(dir, "link"), filepath.Join(dir, "none")
	l, err := net.Listen("unix", socket) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		socket: outcomeOK, link: outcomeOK, file: outcomeNone,
		dir: outcomeNone, none: "ENOENT",
	} {
		if got := trySocket(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	resolved := links([]string{socket, link, none})
	if diff := cmp.Diff(map[string]string{link: socket}, resolved); diff != "" {
		t.Error(diff)
	}
	pid := strconv.Itoa(os.Getpid())
	if got, want := processName(pid), filepath.Base(os.Args[0]); !strings.HasPrefix(want, got) ||
		got == "" {
		t.Errorf("this process is %q, want %q", got, want)
	}
}
