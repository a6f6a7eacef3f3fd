package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// stateDir returns the directory of sessions and consents: $SANDBOXAGENT_STATE_DIR, or the default
// of the system. It is empty without a home directory. The directory need not exist.
func stateDir() (string, error) {
	if dir := os.Getenv("SANDBOXAGENT_STATE_DIR"); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", usagef("SANDBOXAGENT_STATE_DIR: %s", err)
		}
		return dir, nil
	}
	switch runtime.GOOS {
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "sandboxagent"), nil
		}
	case "darwin":
		if dir, err := os.UserConfigDir(); err == nil {
			return filepath.Join(dir, "sandboxagent"), nil
		}
	default:
		if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // a relative one is to be ignored
			return filepath.Join(dir, "sandboxagent"), nil
		}
		// Containers set the root directory as the home of unknown users.
		if home := os.Getenv("HOME"); filepath.IsAbs(home) && home != "/" {
			return filepath.Join(home, ".local", "state", "sandboxagent"), nil
		}
	}
	return "", nil
}

// openState creates the state directory dir and returns it. An empty dir becomes a new temporary
// directory.
func (p *program) openState(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "sandboxagent-state-*"); err != nil {
			return "", usagef("create a directory for sessions: %s "+
				"(set SANDBOXAGENT_STATE_DIR to another one)", err)
		}
		p.printLine(fmt.Sprintf("warning: no home directory; the session is in %s "+
			"(set SANDBOXAGENT_STATE_DIR to another one)", dir))
	}
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return "", usagef("store sessions: %s (set SANDBOXAGENT_STATE_DIR to another directory)", err)
	}
	return dir, nil
}
