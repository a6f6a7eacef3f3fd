package verify

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

// connectTimeout bounds an attempt to connect that should fail at once.
const connectTimeout = 2 * time.Second

// routes returns the network interfaces, except lo, that have a route; nil if they are not known.
func routes() []string {
	found := []string{}
	add := func(name string) {
		if name != "lo" && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	four, err := os.ReadFile("/proc/self/net/route")
	if err != nil {
		return nil
	}
	for i, line := range strings.Split(string(four), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			add(f[0])
		}
	}
	six, err := os.ReadFile("/proc/self/net/ipv6_route")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the kernel may lack IPv6
		return nil
	}
	for line := range strings.Lines(string(six)) {
		if f := strings.Fields(line); len(f) > 0 {
			add(f[len(f)-1])
		}
	}
	return found
}

// tryNetwork connects to "NETWORK ADDRESS" or resolves a name, unless a packet could leave this
// machine.
func tryNetwork(ctx context.Context, verb, object string, routes []string) string {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	network, address, _ := strings.Cut(object, " ")
	closed := routes != nil && len(routes) == 0
	switch {
	case !closed && !strings.HasPrefix(address, "127.0.0.1:"):
		return outcomeSkipped
	case verb == "connect":
		return connect(ctx, network, address)
	}
	return resolve(ctx, &net.Resolver{PreferGo: true}, object)
}

// connect opens a connection and closes it.
func connect(ctx context.Context, network, address string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	var timeout net.Error
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return outcomeOK
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return outcome(err)
}

// resolve looks a name up. The outcome is OK also for the answer that the name does not exist.
func resolve(ctx context.Context, r *net.Resolver, name string) string {
	_, err := r.LookupHost(ctx, name)
	var failed *net.DNSError
	switch {
	case err == nil, errors.As(err, &failed) && failed.IsNotFound:
		return outcomeOK
	case ctx.Err() != nil, failed != nil && failed.IsTimeout:
		return "timeout"
	}
	return outcomeNoAnswer
}

// tryFamily makes a socket of one of socketFamilies, or a pair of datagram sockets, and closes it.
func tryFamily(name string) string {
	if name == "datagram-pair" {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Close(pair[0]), unix.Close(pair[1]))
		}
		return outcome(err)
	}
	family, ok := map[string][2]int{
		"tcp4": {unix.AF_INET, unix.SOCK_STREAM}, "udp4": {unix.AF_INET, unix.SOCK_DGRAM},
		"tcp6": {unix.AF_INET6, unix.SOCK_STREAM}, "udp6": {unix.AF_INET6, unix.SOCK_DGRAM},
		"raw": {unix.AF_INET, unix.SOCK_RAW}, "unix": {unix.AF_UNIX, unix.SOCK_STREAM},
		"netlink": {unix.AF_NETLINK, unix.SOCK_RAW}, "packet": {unix.AF_PACKET, unix.SOCK_DGRAM},
	}[name]
	if !ok {
		return "unknown family"
	}
	fd, err := unix.Socket(family[0], family[1]|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return outcome(err)
}
