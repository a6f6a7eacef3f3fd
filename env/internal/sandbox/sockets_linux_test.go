package sandbox

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listener starts this program with a socket of its own, with other namespaces.
func listener(t *testing.T, flags uintptr, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{"do", "listen"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flags}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("namespaces are not possible: %v", err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// TestSocketsOfOthers connects to sockets that the table of this network namespace does not name by
// their path.
func TestSocketsOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make namespaces")
	}
	need(t, Bubblewrap)
	for name, bind := range map[string]func(t *testing.T, w *world) string{
		"a relative name": func(t *testing.T, w *world) string {
			t.Chdir(w.out)
			l, err := net.Listen("unix", "socket")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return w.out + "/socket"
		},
		"another network": func(t *testing.T, w *world) string {
			listener(t, unix.CLONE_NEWNET, w.out+"/socket")
			return w.out + "/socket"
		},
		"other mounts": func(t *testing.T, w *world) string {
			listener(t, unix.CLONE_NEWNS, w.root+"/name/socket", w.out, w.root+"/name")
			return w.out + "/socket"
		},
		"another network and other mounts": func(t *testing.T, w *world) string {
			listener(t, unix.CLONE_NEWNS|unix.CLONE_NEWNET, w.root+"/name/socket", w.out,
				w.root+"/name")
			return w.out + "/socket"
		},
		"an alias": func(t *testing.T, w *world) string {
			listen(t, w.out+"/socket")
			w.bind(t, "out", "alias", 0)
			return w.root + "/alias/socket"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if err := os.Mkdir(filepath.Join(w.root, "name"), 0o755); err != nil {
				t.Fatal(err)
			}
			socket := bind(t, w)
			if out, code := w.run(t, Bubblewrap, "$DO dial unix "+socket); code != 1 {
				t.Errorf("exit code %d, %s", code, out)
			}
			// A connection would put the name into the table of this network namespace.
			if out, code := w.bare(t, "$DO dial unix "+socket); code != 0 {
				t.Fatalf("without a sandbox: exit code %d, %s", code, out)
			}
		})
	}
}

// TestDatagram sends to a socket outside from one of a pair, which is no new socket.
func TestDatagram(t *testing.T) {
	inTurn(t, func(t *testing.T, w *world, by Mechanism) {
		name := w.out + "/datagram"
		l, err := net.ListenPacket("unixgram", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
		if out, code := w.run(t, by, "$DO datagram "+name); code != 1 {
			t.Errorf("exit code %d, %s", code, out)
		}
	})
}
