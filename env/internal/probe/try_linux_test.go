package probe

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReap leaves a child that does not end, and takes one that does.
func TestReap(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if reap(cmd.Process.Pid, 20*time.Millisecond) {
		t.Error("a process that runs is gone")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !reap(cmd.Process.Pid, time.Minute) {
		t.Error("a process that was killed is not gone")
	}
	_ = cmd.Process.Release()
}

// TestResolve asks name servers that know no name, say nothing, and are not there.
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
					b[2], b[3] = 0x81, 0x83 // there is no such name
					_, _ = l.WriteTo(b[:n], from)
				}
			}
		}()
		return l.LocalAddr().String()
	}
	const nobody = "127.0.0.1:1"
	for name, test := range map[string]struct {
		servers []string
		want    string
	}{
		"none":         {nil, NoAnswer},
		"not there":    {[]string{nobody}, NoAnswer},
		"no such name": {[]string{nobody, listen(true)}, OK},
		"silent":       {[]string{listen(false), nobody}, "timeout"},
	} {
		if got := resolve(t.Context(), test.servers); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	want := []string{"127.0.0.1:53", "[::1]:53", "127.0.0.11:53", "192.0.2.1:53"}
	if diff := cmp.Diff(want, nameServers("# x\nsearch local\nnameserver 192.0.2.1\nnameserver ::1\nnameserver\n")); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	socket, file, link := filepath.Join(dir, "socket"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
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
	for name, want := range map[string]string{socket: OK, link: OK, file: None, dir: None, filepath.Join(dir, "none"): "ENOENT"} {
		if got := trySocket(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if diff := cmp.Diff(map[string]string{link: socket}, links([]string{socket, link, filepath.Join(dir, "none")})); diff != "" {
		t.Error(diff)
	}
	if got := devices()["/dev/null"]; got != "c 1:3" {
		t.Errorf("/dev/null is %q", got)
	}
}
