package verify

import (
	"bufio"
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// reachTimeout bounds an attempt to connect within a cluster, where packets travel for a few
// milliseconds. It is less than the second after which TCP repeats a lost one.
const reachTimeout = 700 * time.Millisecond

// Reach returns the first address that accepts a TCP connection, or none: of the given ones, of the
// API server of Kubernetes, which the variables of a pod name, and of the name servers.
func Reach(ctx context.Context, addresses []string) (answered string, ok bool) {
	addresses = slices.Clone(addresses)
	if host, port := os.Getenv("KUBERNETES_SERVICE_HOST"),
		os.Getenv("KUBERNETES_SERVICE_PORT"); host != "" && port != "" {
		addresses = append(addresses, net.JoinHostPort(host, port))
	}
	return reach(ctx, append(addresses, nameServers("/etc/resolv.conf")...))
}

// reach returns the first address that accepts a connection, or none. An attempt that ends late was
// kept from the processor, so that it may have missed an answer: it is repeated a few times.
func reach(ctx context.Context, addresses []string) (answered string, ok bool) {
	for range 5 {
		began := time.Now()
		answered, ok = reachOnce(ctx, addresses)
		if ok || time.Since(began) < reachTimeout+reachTimeout/4 {
			break
		}
	}
	return answered, ok
}

func reachOnce(ctx context.Context, addresses []string) (answered string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	found := make(chan string, len(addresses))
	var tries sync.WaitGroup
	for _, address := range addresses {
		tries.Go(func() {
			if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
				found <- address
				cancel()
				_ = conn.Close() // nothing was sent
			}
		})
	}
	tries.Wait()
	select {
	case answered = <-found:
		return answered, true
	default:
		return "", false
	}
}

// nameServers returns the addresses in a file such as /etc/resolv.conf.
func nameServers(name string) (addresses []string) {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 2 && words[0] == "nameserver" {
			addresses = append(addresses, net.JoinHostPort(words[1], "53"))
		}
	}
	return addresses
}
