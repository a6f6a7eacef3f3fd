package ssh

import (
	"bufio"
	"errors"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

func TestParseListed(t *testing.T) {
	got, err := parseListed("env 1 4711 1700000000 60000ms 192.0.2.1 /tmp/sandboxagent-0/e-abc")
	want := Listed{Listed: remote.Listed{
		Session: "abc", State: "running", Created: time.Unix(1_700_000_000, 0), TTL: time.Minute,
		Owner: "192.0.2.1", Reason: "process 4711",
	}, PID: 4711, dir: "/tmp/sandboxagent-0/e-abc"}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(Listed{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = parseListed("env 0 0 0 - - /home/a b/e-x")
	if err != nil || !got.Garbage || !got.Created.IsZero() || got.TTL != 0 || got.Owner != "" ||
		got.dir != "/home/a b/e-x" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "env", "env 1 x 0 - - /e-a", "env 1 1 x - - /e-a",
		"env 1 1 1 - - e-a", "env 1 1 1 - - /a", "env 1 1 1 - - /e-A/../e-", "run 1 1 1 - - /e-a",
	} {
		if got, err := parseListed(bad); !errors.Is(err, env.ErrProtocol) {
			t.Errorf("%q is %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseListed(f *testing.F) {
	f.Add("env 1 4711 1700000000 60000ms 192.0.2.1 /tmp/sandboxagent-0/e-abc")
	f.Add("env 0 0 0 - - /e-x\x1b[2J")
	f.Fuzz(func(t *testing.T, line string) {
		l, err := parseListed(line)
		if err != nil {
			return
		}
		if !remote.IsSession(l.Session) || !path.IsAbs(l.dir) || strings.ContainsFunc(l.Owner,
			func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q is %+v", line, l)
		}
	})
}

// reading returns the answers in the output of a host.
func reading(text string) *answers {
	exited := make(chan struct{})
	close(exited)
	return &answers{p: &process{
		out:    bufio.NewReader(strings.NewReader(text)),
		stderr: &helper.StderrTail{}, exited: exited,
	}, mark: "MARK"}
}

func TestAnswers(t *testing.T) {
	a := reading("welcome\nMARKX no\n MARK no\nMARK one\n" + strings.Repeat("x", 100<<10) +
		"\nMARK two words\nMARK cut off")
	for _, want := range []string{"one", "two words"} {
		if got, err := a.next(); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if got, err := a.next(); err == nil {
		t.Errorf("an answer that is cut off is taken for %q", got)
	}
	if got, err := reading("MARK " + strings.Repeat("x", 100<<10) +
		"\nMARK two\n").next(); !errors.Is(err, env.ErrProtocol) {
		t.Errorf("an answer without end is taken for one of %d bytes, %v", len(got), err)
	}
	if _, err := reading(strings.Repeat("noise\n", maxNoise)).next(); err == nil ||
		!strings.Contains(err.Error(), "prints more than") {
		t.Errorf("endless noise gives %v", err)
	}
	if _, err := reading(strings.Repeat("x", 2*maxNoise)).next(); err == nil ||
		len(err.Error()) > 1000 {
		t.Errorf("an endless line gives %v", err)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("noise\nMARK run /tmp/e-a /x\n")
	f.Add("MARK \nMARK")
	f.Fuzz(func(t *testing.T, text string) {
		a := reading(text)
		for range 1000 {
			line, err := a.next()
			if err != nil {
				return
			}
			if strings.Contains(line, "\n") || !strings.Contains(text, "MARK "+line+"\n") {
				t.Errorf("%q is an answer of %q", line, text)
			}
		}
	})
}

func TestWorkDir(t *testing.T) {
	for _, tt := range []struct{ home, dir, want string }{
		{"/home/a", "", "/home/a"},
		{"/home/a", "~", "/home/a"},
		{"/home/a", "~/src", "/home/a/src"},
		{"/home/a", "src/x", "/home/a/src/x"},
		{"/home/a", "/srv", "/srv"},
		{"", "/srv", "/srv"},
		{"", "src", ""},
		{"relative", "", ""},
	} {
		got, err := workDir(tt.home, tt.dir)
		var config *ConfigError
		if got != tt.want || (tt.want == "") != errors.As(err, &config) {
			t.Errorf("%q in %q is %q, %v", tt.dir, tt.home, got, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		field string
		c     Config
	}{
		{"", Config{}},
		{"", Config{WorkDir: "a b"}},
		{"helper-dir", Config{HelperDir: "a\nb"}},
		{"working directory", Config{WorkDir: "a\nb"}},
		{"ttl", Config{Options: remote.Options{TTL: -1}}},
	} {
		err := tt.c.Validate()
		var config *ConfigError
		if errors.As(err, &config); err == nil != (tt.field == "") || config != nil &&
			config.Field != tt.field {
			t.Errorf("%+v: %v, want %q", tt.c, err, tt.field)
		}
	}
}

// TestQuote has shells read words.
func TestQuote(t *testing.T) {
	words := []string{
		"", "a b", "it's", "''", "$HOME `id` $(id)", "*?[a]", "a\tb\nc", `"\`, "-n", "~",
		"é\x01", "!x",
	}
	for _, shell := range []string{"sh", "dash", "bash", "busybox", "zsh"} {
		name, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		args := []string{"-c", "printf '%s\\0' " + quoteAll(words)}
		if shell == "busybox" {
			args = append([]string{"sh"}, args...)
		}
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
			t.Errorf("%s reads %q, %v", shell, out, err)
		}
	}
}
