//go:build unix

package main

import (
	"net/http"
	"testing"
)

// TestTooManyProcessors limits a container to more processors than the daemon's machine has.
func TestTooManyProcessors(t *testing.T) {
	t.Parallel()
	const want = "sandboxagent: --cpus: 99 is more than the 8 processors of the daemon's machine\n"
	for _, text := range []string{"Range of CPUs", "range of CPUs"} { // of older and of newer daemons
		daemon := fakeDaemon(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/containers/create" {
				return false
			}
			http.Error(w, `{"message":"`+text+` is from 0.01 to 8.00, as there are only 8 CPUs available"}`,
				http.StatusBadRequest)
			return true
		})
		p := newProcess(t, "exec", "--env=docker", "--image=img:1", "--cpus=99",
			"--helper-binary="+fakeHelper(t), "--", "true")
		p.Env = append(p.Env, daemon)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t); code != codeExecFailed || p.stderr.String() != want {
			t.Errorf("exit code %d, %q, want %d, %q", code, p.stderr.String(), codeExecFailed, want)
		}
	}
}
