//go:build unix

package local

// AwaitPrepared waits until a helper is read.
func AwaitPrepared(p *Prepared) {
	if p.file != nil {
		p.file.Wait()
	}
}
