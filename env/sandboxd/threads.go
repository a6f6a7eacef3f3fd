//go:build unix

package sandboxd

import (
	"runtime"
	"sync"
)

const (
	// threads is how many threads start in advance: a thread that the system refuses would end the
	// process.
	threads = 32
	// maxBlocking bounds the file operations that block in the system at once; the other threads
	// stay free.
	maxBlocking = 16
)

// prespawn starts n threads, which stay.
func prespawn(n int) {
	var ready, over sync.WaitGroup
	release := make(chan struct{})
	for range n {
		ready.Add(1)
		over.Go(func() {
			// A goroutine that is locked to a thread keeps that thread from running others.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	over.Wait()
}
