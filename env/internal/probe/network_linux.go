package probe

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// connectTime is how long a connection may take that is to fail at once.
const connectTime = 2 * time.Second

// network returns the names of the interfaces that are up, and of those but lo that have a route. Some kernels put
// interfaces into each namespace that are never up.
func network() (interfaces, routes []string, err error) {
	interfaces, routes = []string{}, []string{}
	found, err := net.Interfaces()
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
	quiet := len(d.Routes) == 0 && !slices.ContainsFunc(d.Interfaces, func(name string) bool { return name != "lo" })
	for _, t := range Outside() {
		d.Tries[TryConnect(t.Network, t.Address)] = Skipped
		if quiet {
			d.Tries[TryConnect(t.Network, t.Address)] = connect(ctx, t)
		}
	}
	d.Tries[TryResolve] = Skipped
	if quiet {
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		_, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, "example.com")
		d.Tries[TryResolve] = OK
		var lookup *net.DNSError
		if errors.As(err, &lookup) && !lookup.IsTimeout {
			d.Tries[TryResolve] = "no answer"
		} else if err != nil {
			d.Tries[TryResolve] = "timeout"
		}
	}
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
