package daemons

import (
	"testing"
)

// fakeTB records how a test would end.
type fakeTB struct {
	testing.TB
	ended string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Skip(...any)           { f.ended += "skipped" }
func (f *fakeTB) Fatalf(string, ...any) { f.ended += "failed" }

func TestMissing(t *testing.T) {
	for _, tt := range []struct{ name, service, require, want string }{
		{"nothing demanded", "ssh", "", "skipped"},
		{"others demanded", "ssh", "docker,sshd", "skipped"},
		{"demanded", "ssh", "docker,ssh", "failedskipped"}, // a failure does not stop the fake
		{"another one, demanded", "docker", "docker,ssh", "failedskipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(RequireVar, tt.require)
			tb := &fakeTB{TB: t}
			if Missing(tb, tt.service, "it is not here"); tb.ended != tt.want {
				t.Errorf("got %q, want %q", tb.ended, tt.want)
			}
		})
	}
}
