//go:build unix

package sandboxd

import (
	"net"
	"testing"
)

// TestFloodIsReplaced opens as many connections as are allowed, by processes that have failed
// before. Others connect for the first time: none of those is refused, and none replaced.
func TestFloodIsReplaced(t *testing.T) {
	d := &socketServer{pendingBy: map[int]int{}, failures: map[int]int{}}
	connect := func(peer int) (*pendingConn, bool) {
		v := &pendingConn{UnixConn: new(net.UnixConn), peer: peer, settle: d.settle}
		return v, d.admit(v)
	}
	const attackers = 40
	flood := func() {
		for peer := 2; peer < 2+attackers; peer++ {
			for range maxPendingPerPeer + 1 {
				_, _ = connect(peer)
			}
		}
	}
	flood()
	if len(d.pending) != maxPending {
		t.Fatalf("%d connections are pending, want %d", len(d.pending), maxPending)
	}
	for newcomer := 1000; newcomer < 1000+maxPending/2; newcomer++ {
		v, ok := connect(newcomer)
		if !ok {
			t.Fatalf("process %d is refused", newcomer)
		}
		flood()
		if d.pendingBy[newcomer] != 1 {
			t.Fatalf("process %d is replaced", newcomer)
		}
		if d.settle(v); d.pendingBy[newcomer] != 0 {
			t.Fatalf("process %d is still pending", newcomer)
		}
	}
	for peer, n := range d.pendingBy {
		if n > maxPendingPerPeer {
			t.Errorf("process %d has %d connections, more than %d", peer, n, maxPendingPerPeer)
		}
	}
}
