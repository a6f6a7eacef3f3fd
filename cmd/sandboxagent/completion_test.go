package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func TestComplete(t *testing.T) {
	p := &program{}
	for _, tt := range []struct {
		// line has an underscore for an empty word
		line, want string
		files      bool
	}{
		{line: "e", want: "exec env"},
		{line: "h", want: "help"},
		{line: "env _", want: "verify list attach rm gc"},
		{line: "env l", want: "list"},
		{line: "help env l", want: "list"},
		{line: "--env docker ex", want: "exec"},
		{line: "moon _"},
		{line: "env moon _"},
		{line: "run --max-t", want: "--max-turns --max-tool-rounds --max-tokens"},
		{line: "env gc -", want: "--help --dry-run --all --env --kubeconfig --context --namespace" +
			" --as --as-group --host --identity --known-hosts --accept-new-host-key --profile-name"},
		{line: "exec --env _", want: "local docker k8s ssh"},
		{line: "exec --env=d", want: "--env=docker"},
		{line: "exec --env = d", want: "docker"},
		{line: "exec --env =", want: "local docker k8s ssh"},
		{line: "exec --env = docker --pull a", want: "always"},
		{line: "env list --env _", want: "docker k8s ssh"},
		{line: "env verify -o _", want: "text json"},
		{line: "run -o s", want: "stream-json"},
		{line: "exec --enforce no-", want: "no-network no-new-rights"},
		{line: "run -m anthropic/claude-opus-4-1", want: "anthropic/claude-opus-4-1"},
		{line: "run --model=openai/gpt-5.3-codex-s", want: "--model=openai/gpt-5.3-codex-spark"},
		{line: "run --patch _", files: true},
		{line: "run --patch=x", files: true},
		{line: "exec -C _", files: true},
		{line: "exec --allow-write _", files: true},
		{line: "exec --upload _", files: true},
		{line: "run --verify _"},
		{line: "run _"},
		{line: "exec _", files: true},
		{line: "exec -- -", files: true},
		{line: "image build n", want: "node"},
		{line: "tool gl", want: "glob"},
		{line: "completion _", want: "bash zsh fish"},
	} {
		line := strings.Fields(tt.line)
		if last := len(line) - 1; line[last] == "_" {
			line[last] = ""
		}
		words, files := p.complete(p.app(), line)
		if got := strings.Join(words, " "); got != tt.want || files != tt.files {
			t.Errorf("%q: %q, files %v, want %q, files %v", tt.line, got, files, tt.want, tt.files)
		}
	}
}

// TestFlagValues compares the values of flags that are completed with those that messages about
// invalid ones list.
func TestFlagValues(t *testing.T) {
	listed := regexp.MustCompile(`(?:is not one of |known: )([a-z0-9, -]+)`)
	var flags []cli.Flag
	reject := func(args ...string) error {
		p := &program{line: commandLine{command: "exec", flags: args}}
		app := p.app()
		var err error
		for _, c := range app.Commands {
			if c.Name == "exec" {
				flags = c.Flags
				c.Action = func(c *cli.Context) error {
					var s environmentSettings
					if s, err = p.parseEnvironmentFlags(c); err == nil {
						_, err = s.backend.open(t.Context(), s.config)
					}
					return nil
				}
			}
		}
		if perr := p.runAction(t.Context(), app); perr != nil {
			t.Fatal(perr)
		}
		return err
	}
	for flag, backend := range map[string]string{
		"env": "", "inherit-vars": "local", "sandbox": "local", "network": "local", "git": "local",
		"sockets": "local", "enforce": "local", "pull": "docker",
	} {
		args := []string{"--" + flag + "=moon"}
		if backend != "" {
			args = append(args, "--env="+backend)
		}
		err := reject(args...)
		if err == nil {
			t.Errorf("--%s accepts moon", flag)
			continue
		}
		var want []string
		if m := listed.FindStringSubmatch(err.Error()); m != nil {
			want = strings.Split(m[1], ", ")
		}
		got := flagValues(findFlag(flags, flag).(cli.DocGenerationFlag))
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("--%s: %v: -want +got:\n%s", flag, err, diff)
		}
	}
}
