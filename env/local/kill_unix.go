//go:build unix

package local

// Kill kills everything that the environment started, without any grace, and returns when it is dead. It is for a program
// that has to end at once: commands in progress end with SIGKILL, and Close remains to be called.
func (e *Environment) Kill() error {
	// A command leaves the books before its process is reaped, so that no number of a process means another one here.
	e.mu.Lock()
	defer e.mu.Unlock()
	t := tree{marker: e.marker, all: true, known: make(map[identity]bool)}
	for p := range e.running {
		t.leaders = append(t.leaders, p)
	}
	if err := t.bound(); err != nil {
		return t.terminateGroups(0)
	}
	return t.kill()
}
