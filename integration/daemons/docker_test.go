package daemons

import (
	"os"
	"testing"
)

// fakeTB notes how a test ended instead of ending it.
type fakeTB struct {
	testing.TB
	ended string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Skip(...any)           { f.ended += "skipped" }
func (f *fakeTB) Fatalf(string, ...any) { f.ended += "failed" }

func TestDockerHost(t *testing.T) {
	for _, tt := range []struct{ name, host, require, want string }{
		{"given", "unix:///x", "", ""},
		{"given and demanded", "unix:///x", "docker", ""},
		{"missing", "", "", "skipped"},
		{"missing, others demanded", "", "envtest,dockerish", "skipped"},
		{"missing and demanded", "", "envtest,docker", "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(HostVar, tt.host)
			t.Setenv(RequireVar, tt.require)
			tb := &fakeTB{TB: t}
			host := DockerHost(tb)
			// A failure does not stop the fake, so that the skip follows it.
			if len(tb.ended) > len(tt.want) {
				tb.ended = tb.ended[:len(tt.want)]
			}
			if host != tt.host || tb.ended != tt.want {
				t.Errorf("got %q, %q; want %q, %q", host, tb.ended, tt.host, tt.want)
			}
		})
	}
	if os.Getenv(HostVar) == "nowhere" {
		t.Error("the variables are not restored")
	}
}

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
