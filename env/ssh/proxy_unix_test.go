//go:build unix

package ssh

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// proxyVar holds the address that TestProxyProcess connects to.
const proxyVar = "SANDBOXAGENT_TEST_PROXY"

// TestProxyProcess is a ProxyCommand for other tests.
func TestProxyProcess(t *testing.T) {
	address := os.Getenv(proxyVar)
	if address == "" {
		t.Skip("other tests start it in a process of its own")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(conn, os.Stdin) }()
	_, _ = io.Copy(os.Stdout, conn)
	os.Exit(0)
}

// TestProxyCommand logs in over a ProxyCommand, and checks that its process tree ends with the
// connection.
func TestProxyCommand(t *testing.T) {
	m, s := newLogin(t, "", "")
	known := m.read(t, "known_hosts")
	m.write(t, "known_hosts", "h.example.com"+known[strings.Index(known, " "):])
	script := m.write(t, "proxy.sh", "sleep 1000 & echo $$ $! $1 $2 >"+m.dot("started")+"; "+
		os.Args[0]+" -test.run='^TestProxyProcess$'")
	m.write(t, "config", "HostName %h.example.com\nProxyCommand /bin/sh "+script+" %h %p")
	t.Setenv(proxyVar, net.JoinHostPort(s.host, s.port))
	t.Setenv("SANDBOXAGENT_TEST_HELPER", "none") // TestMain builds nothing
	client, err := m.route(t, Target{Host: "user@h"}).dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(m.read(t, "started"))
	if len(words) != 4 || words[2] != "h.example.com" || words[3] != "22" {
		t.Fatalf("the command got %q", words)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for _, word := range words[:2] {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the process tree", func() bool {
			stat, _ := os.ReadFile("/proc/" + word + "/stat")
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || strings.Contains(string(stat), ") Z ")
		})
	}
}

func TestProxyCommandFails(t *testing.T) {
	m := newHome(t)
	m.write(t, "config", "ProxyCommand echo broken >&2; exit 1")
	err := m.connect(t, Target{Host: "me@h"})
	var failed *ConnectError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "ProxyCommand ended: \"broken\"") {
		t.Errorf("got the error %v", err)
	} // A write may fail before a read does.
	conn, err := dialProxy(&hop{
		proxyCommand: "/bin/sh -c 'echo broken >&2; exec <&-; exec sleep 0.2'",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the command has ended
	for err == nil {   // until the command has closed its stdin
		_, err = conn.Write(make([]byte, 1<<10))
	}
	if !strings.Contains(err.Error(), "ProxyCommand ended: \"broken\"") {
		t.Errorf("a write returned %v", err)
	}
}
