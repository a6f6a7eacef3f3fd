package probe

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// connectTime is how long a connection may take that is to fail at once.
const connectTime = 2 * time.Second

// maxServers is how many name servers are asked.
const maxServers = 16

// network returns the names of the interfaces that are up, and of those but lo that have a route. Some kernels put
// interfaces into each namespace that are never up.
func network() (interfaces, routes []string, err error) {
	interfaces, routes = []string{}, []string{}
	found, err := net.Interfaces()
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, nil, nil
	}
	if err != nil {
		return interfaces, routes, err
	}
	for _, i := range found {
		if i.Flags&net.FlagUp != 0 {
			interfaces = append(interfaces, i.Name)
		}
	}
	add := func(name string) {
		if name != "lo" && !slices.Contains(routes, name) {
			routes = append(routes, name)
		}
	}
	four, err := os.ReadFile("/proc/self/net/route")
	if err != nil {
		return interfaces, routes, err
	}
	for i, line := range strings.Split(string(four), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			add(f[0])
		}
	}
	six, err := os.ReadFile("/proc/self/net/ipv6_route")
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the kernel has no IPv6
	}
	for line := range strings.Lines(string(six)) {
		if f := strings.Fields(line); len(f) > 0 {
			add(f[len(f)-1])
		}
	}
	return interfaces, routes, err
}

// tryNetwork tries connections, those to the outside only where no packet can get there.
func (d *Document) tryNetwork(ctx context.Context, q Request) {
	for _, address := range q.Connect {
		d.Tries[TryConnect("tcp", address)] = connect(ctx, Target{"tcp", address})
	}
	for family, f := range families() {
		fd, err := unix.Socket(f.domain, f.kind|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		d.Tries[TrySocketOf(family)] = outcome(err)
	}
	quiet := d.Routes != nil && len(d.Routes) == 0 && !slices.ContainsFunc(d.Interfaces, func(name string) bool { return name != "lo" })
	for _, t := range Outside() {
		d.Tries[TryConnect(t.Network, t.Address)] = Skipped
		if quiet {
			d.Tries[TryConnect(t.Network, t.Address)] = connect(ctx, t)
		}
	}
	d.Tries[TryResolve] = Skipped
	if quiet {
		text, _ := os.ReadFile("/etc/resolv.conf") // without, there are the usual ones
		d.Tries[TryResolve] = resolve(ctx, nameServers(string(text)))
	}
}

type family struct{ domain, kind int }

// families are those of Families.
func families() map[string]family {
	return map[string]family{
		"tcp4": {unix.AF_INET, unix.SOCK_STREAM}, "udp4": {unix.AF_INET, unix.SOCK_DGRAM}, "tcp6": {unix.AF_INET6, unix.SOCK_STREAM},
		"udp6": {unix.AF_INET6, unix.SOCK_DGRAM}, "raw": {unix.AF_INET, unix.SOCK_RAW}, "unix": {unix.AF_UNIX, unix.SOCK_STREAM},
		"netlink": {unix.AF_NETLINK, unix.SOCK_RAW}, "packet": {unix.AF_PACKET, unix.SOCK_DGRAM},
	}
}

// question asks for the address of example.com, in the protocol of name servers.
const question = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"

// nameServers are the addresses of those that resolv.conf names, and of those that are usual.
func nameServers(text string) []string {
	hosts := []string{"127.0.0.1", "::1", "127.0.0.11"}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" && !slices.Contains(hosts, f[1]) && len(hosts) < maxServers {
			hosts = append(hosts, f[1])
		}
	}
	for i, h := range hosts {
		hosts[i] = net.JoinHostPort(h, "53")
	}
	return hosts
}

// resolve asks all servers: the outcome is OK if any says anything, be it that there is no such name, "timeout" if one may
// have been reached, and else NoAnswer.
func resolve(ctx context.Context, servers []string) string {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	outcomes := make(chan string, len(servers))
	for _, s := range servers {
		go func() { outcomes <- ask(ctx, s) }()
	}
	result := NoAnswer
	for range servers {
		if o := <-outcomes; o == OK || o == "timeout" && result != OK {
			result = o
		}
	}
	return result
}

// ask asks one server.
func ask(ctx context.Context, server string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server)
	if err != nil {
		return NoAnswer
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // it is open
	}
	if _, err = conn.Write([]byte(question)); err == nil {
		_, err = conn.Read(make([]byte, 512))
	}
	var timeout net.Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return NoAnswer
}

// connect connects; with UDP that only chooses a route.
func connect(ctx context.Context, t Target) string {
	conn, err := (&net.Dialer{Timeout: connectTime}).DialContext(ctx, t.Network, t.Address)
	var timeout net.Error
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return OK
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return outcome(err)
}
