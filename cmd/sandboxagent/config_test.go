package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// configure makes an empty home directory and a project in a repository, and enters it. It returns
// the names of the user's file and of the project's, whose contents it writes if they have one.
func configure(t *testing.T, user, project string) (userFile, projectFile string) {
	t.Helper()
	home, root := t.TempDir(), t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	userFile, projectFile = configFile(configName), filepath.Join(root, configName)
	for _, dir := range []string{
		filepath.Dir(userFile), filepath.Join(root, ".git"), filepath.Join(root, "sub"),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	user = strings.ReplaceAll(user, "ROOT", root)
	for name, content := range map[string]string{userFile: user, projectFile: project} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	return userFile, projectFile
}

// TestPrecedence checks which source of a flag counts.
func TestPrecedence(t *testing.T) {
	const profiles = "profiles: {ci: {model: openai/ci, quiet: true}, other: {verbose: true}}\n"
	for _, tt := range []struct {
		name, user, project, vars, args, want, err string
	}{
		{name: "no file", args: "exec a", want: "-- a"},
		{name: "empty files", user: "# nothing\n", project: "---\n{}\n", args: "exec a", want: "-- a"},
		{
			name: "the user's", user: "model: openai/u\nmax-turns: 20\ntimeout: 30m\nread-only: true\n" +
				"var: [A=1, B=2]\n",
			args: "run x",
			want: "--model=openai/u --max-turns=20 --timeout=30m --read-only=true --var=A=1 --var=B=2 -- x",
		},
		{
			name: "the project's goes before it", user: "model: openai/u\n", project: "model: openai/p\n",
			args: "run x", want: "--model=openai/p -- x",
		},
		{
			name: "a variable goes before both", user: "model: openai/u\n", project: "model: openai/p\n",
			vars: "MODEL=v", args: "run x", want: "--model=v -- x",
		},
		{
			name: "a flag goes before all", user: "model: openai/u\nvar: [A=1]\n",
			project: "model: openai/p",
			vars:    "MODEL=v", args: "run -m f -e B=2 x", want: "--model=f --var=B=2 -- x",
		},
		{
			name: "a profile goes before its file", user: "model: openai/u\n" + profiles,
			args: "run --profile-name ci x", want: "--profile-name=ci --model=openai/ci --quiet=true -- x",
		},
		{
			name: "the project goes before a profile", user: profiles, project: "model: openai/p\n",
			vars: "PROFILE_NAME=ci", args: "run x",
			want: "--profile-name=ci --model=openai/p --quiet=true -- x",
		},
		{
			name: "excluded by a profile", user: "quiet: true\n" + profiles,
			args: "run --profile-name=other x", want: "--profile-name=other --verbose=true -- x",
		},
		{
			name: "an unknown profile", user: profiles, args: "run --profile-name=c x",
			err: `--profile-name: no profile "c" in USER (known: ci, other)`,
		},
		{
			name: "a variable with an unknown profile", user: "quiet: true\n", vars: "PROFILE_NAME=c",
			args: "run x",
			err:  `the variable SANDBOXAGENT_PROFILE_NAME: no profile "c" in USER (known: it has none)`,
		},
		{
			name: "a profile without a file", args: "exec --profile-name=c x",
			err: `--profile-name: no profile "c": the file USER is missing`,
		},
		{
			name: "a backend of the file", user: "env: docker\nhost: h\nimage: i\n", vars: "CPUS=2",
			args: "exec a", want: "--cpus=2 --env=docker --image=i -- a",
		},
		{
			name: "another backend's", user: "env: docker\nhost: h\nimage: i\n", project: "image: p\n",
			args: "exec --env=local a", want: "--env=local -- a",
		},
		{name: "another command's", user: "model: openai/u\n", args: "exec a", want: "-- a"},
		{
			name: "a command without their flags", user: "moon: 1\n", project: "moon: 1\n",
			args: "session list", want: "--",
		},
		{
			name: "an open environment", user: "env: docker\n", args: "exec --env-id=i a",
			want: "--env-id=i --env=docker -- a",
		},
		{
			name: "a sandbox that is off", user: "network: full\nallow-write: [/tmp]\n",
			project: "network: none\n", args: "exec --sandbox=off a", want: "--sandbox=off -- a",
		},
		{
			name: "a repository that makes it read-only", user: "allow-write: [/tmp]\n",
			project: "read-only: true\n", args: "exec a", want: "--read-only=true -- a",
		},
		{
			name: "a stricter limit of the project", user: "max-turns: 20\nmemory: 2GiB\ntimeout: 1h\n",
			project: "max-turns: 10\nmemory: 512MiB\ntimeout: 5m\n", args: "run --env=docker x",
			want: "--env=docker --max-turns=10 --memory=512MiB --timeout=5m -- x",
		},
		{
			name: "a laxer limit of the project", user: "max-turns: 20\nmemory: 2GiB\n" +
				"profiles: {ci: {timeout: 10m}}\n",
			project: "max-turns: 30\nmemory: 3GiB\ntimeout: 20m\n",
			args:    "run --env=docker --profile-name=ci x",
			want:    "--env=docker --profile-name=ci --timeout=10m --max-turns=20 --memory=2GiB -- x",
		},
		{
			name: "limits of the project that are laxer than the defaults",
			project: "memory: 5GiB\ncpus: 3\npids: 5000\nmax-tool-rounds: 201\n" +
				"max-retries: 4\nretry-for: 121s\nmax-retry-wait: 6m\napprove-timeout: 11m\n",
			args: "run --env=docker x", want: "--env=docker -- x",
		},
		{
			name: "a limit of the project below that of the user above the default",
			user: "memory: 8GiB\n", project: "memory: 6GiB\n",
			args: "run --env=docker x", want: "--env=docker --memory=6GiB -- x",
		},
		{
			name:    "a mistake after a key that counts",
			project: "workdir: .\nmax-truns: 3\nread-only: true\n", args: "run x",
			err: "PROJECT:2: max-truns is unknown; did you mean max-turns?",
		},
		{
			name: "the address of a model of another provider",
			user: "model: openai-compatible/q\nbase-url: http://h\n",
			args: "run --model=openai/p x", want: "--model=openai/p -- x",
		},
		{
			name: "the address of a model of the same provider",
			user: "model: openai-compatible/q\nbase-url: http://h\n",
			args: "run --model=openai-compatible/p x",
			want: "--model=openai-compatible/p --base-url=http://h -- x",
		},
		{
			name: "an address beside the model of a repository", vars: "BASE_URL=http://h",
			project: "model: anthropic/x\n", args: "run --model=openai/p x",
			want: "--model=openai/p --base-url=http://h -- x",
		},
		{
			name: "an address without a model", user: "base-url: http://h\n",
			args: "run --model=openai/p x", want: "--model=openai/p --base-url=http://h -- x",
		},
		{
			name: "the address of a profile's model",
			user: "model: openai/p\nprofiles: {own: {model: openai-compatible/q, base-url: http://h}}\n",
			args: "run --profile-name=own x",
			want: "--profile-name=own --model=openai-compatible/q --base-url=http://h -- x",
		},
		{
			name: "a sandbox that the user's file has off", user: "sandbox: off\n",
			project: "network: none\n", args: "exec a", want: "--sandbox=off -- a",
		},
		{
			name: "a file of the user elsewhere", user: "models: m.yaml\npolicy: read-only\n",
			args: "run x", want: "--models=CONFIG/m.yaml --policy=read-only -- x",
		},
		{
			name: "an upload that the repository adds", project: "workdir: sub\n",
			args: "exec --env=docker a", want: "--env=docker -- a",
		},
		{
			name: "a rollback reads no file of the project", project: "yes: true\n",
			args: "session undo --last", want: "--last=true --",
		},
		{
			name: "a limit of the project alone", project: "max-turns: 30\n", args: "run x",
			want: "--max-turns=30 -- x",
		},
		{
			name: "a trusted project", user: "trusted: [ROOT]\n",
			project: "base-url: http://h\nmodel: openai-compatible/m\nallow: [shell]\nmax-turns: 0\n",
			args:    "run x",
			want:    "--base-url=http://h --model=openai-compatible/m --allow=shell --max-turns=0 -- x",
		},
		{
			name: "another project is trusted", user: "trusted: [ROOT/sub, ROOT/..]\n",
			project: "keep: true\n", args: "run x", err: "PROJECT:1: keep may not be set by a repository, " +
				"which may set model, image, workdir, network, read-only, timeout, start-timeout, " +
				"approve-timeout, max-turns, max-tool-rounds, max-tokens, max-cost, max-processes, " +
				"max-retries, retry-for, max-retry-wait, cpus, memory, pids, disk, deny, ask; if you " +
				"trust this one, list ROOT under trusted in USER",
		},
		{
			name: "a project and a remote directory", project: "model: openai/p\nworkdir: sub\n",
			args: "run --env=ssh --workdir=/far x", want: "--env=ssh --workdir=/far --model=openai/p -- x",
		},
		{
			name: "no directory of a remote host", project: "workdir: sub\n", args: "exec --env=ssh x",
			want: "--env=ssh -- x",
		},
		{
			name: "another key than the address is for", user: "base-url: http://h\nmodel: openai/u\n",
			project: "model: anthropic/p\n", args: "run x",
			err: "PROJECT:1: model: a repository may not select anthropic/p: --base-url and " +
				"SANDBOXAGENT_API_KEY are for your own model; give --model",
		},
		{
			name: "another one for the key", vars: "API_KEY=k", project: "model: anthropic/p\n",
			args: "run x",
			err: "PROJECT:1: model: a repository may not select anthropic/p: --base-url and " +
				"SANDBOXAGENT_API_KEY are for your own model; give --model",
		},
		{
			name: "another model of the address", user: "base-url: http://h\nmodel: openai/u\n",
			project: "model: openai/p\n", args: "run x",
			want: "--model=openai/p --base-url=http://h -- x",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			user, project := configure(t, tt.user, tt.project)
			for _, v := range strings.Fields(tt.vars) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv("SANDBOXAGENT_"+name, value)
			}
			app := (&program{}).app()
			l, err := parseCommandLine(app, strings.Fields(tt.args))
			if err == nil {
				err = l.addSettings(app, programLine{})
			}
			if err == nil {
				err = l.checkModel()
			}
			l.nameSource(err)
			text := ""
			if err != nil {
				text = err.Error()
			}
			want := strings.NewReplacer("USER", user, "PROJECT", project,
				"ROOT", filepath.Dir(project)).Replace(tt.err)
			wanted := strings.ReplaceAll(tt.want, "CONFIG", filepath.Dir(user))
			if got := l.text(err); got != wanted || text != want {
				t.Errorf("got %q\nerror %q\nwant %q\nerror %q", got, text, wanted, want)
			}
		})
	}
}

// TestRecalledSettings goes on twice with a session, whose flags come from arguments and files.
func TestRecalledSettings(t *testing.T) {
	for _, tt := range []struct {
		name, user, project, args string
		// laterUser and laterProject are the files at the end; empty means the same ones.
		laterUser, laterProject, want string
	}{
		{
			name: "rules of both", user: "deny: [shell:a]\n", args: "--deny=shell:b",
			want: "--deny=shell:a --deny=shell:b",
		},
		{
			name: "an address of another provider", args: "",
			user:      "model: openai-compatible/q\nbase-url: http://h\n",
			laterUser: "model: openai/p\n", want: "--model=openai/p",
		},
		{
			name: "a limit of the repository", project: "max-turns: 10\n",
			laterProject: "max-turns: 20\n", want: "--max-turns=20",
		},
		{
			name: "a laxer limit of the repository", args: "--max-turns=5",
			project: "max-turns: 10\n", want: "--max-turns=5",
		},
		{
			name: "a limit of a former file of the user", user: "max-turns: 5\n",
			laterUser: "{}", laterProject: "max-turns: 10\n", want: "--max-turns=5",
		},
		{
			name: "the directory of the repository", project: "workdir: sub\n", laterProject: "{}",
			want: "--workdir=ROOT/sub",
		},
		{
			name: "rules of the project, from its directory", project: "workdir: sub\ntimeout: 1m\n",
			want: "--timeout=1m --workdir=ROOT/sub",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			user, project := configure(t, tt.user, tt.project)
			root := filepath.Dir(project)
			if err := os.Mkdir(filepath.Join(root, "sub", ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			app := (&program{}).app()
			var before programLine
			for i, args := range []string{"run " + tt.args, "run", "run"} {
				l, err := parseCommandLine(app, strings.Fields(args))
				given := l.given()
				if err == nil {
					err = l.addSettings(app, before)
				}
				if err != nil {
					t.Fatal(err)
				}
				l.merge(before, given, app.Command(runName).Flags)
				if i == 2 {
					slices.Sort(l.flags)
					if got := strings.Join(l.flags, " "); got != strings.ReplaceAll(tt.want, "ROOT", root) {
						t.Errorf("got %s, want %s", got, tt.want)
					}
				}
				record, err := (&program{line: l}).recordLine(nil)
				if err != nil {
					t.Fatal(err)
				}
				before = programLine{}
				if err := json.Unmarshal(record, &before); err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					rewrite(t, user, tt.laterUser)
					rewrite(t, project, tt.laterProject)
				}
			}
		})
	}
}

// rewrite replaces a file, unless content is empty.
func rewrite(t *testing.T, name, content string) {
	t.Helper()
	if content == "" {
		return
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGivenAgain checks that a secret is given again in arguments, unless a file had it.
func TestGivenAgain(t *testing.T) {
	const secret = "var: [API_TOKEN=hunter2-hunter2]\n"
	for _, tt := range []struct {
		user, args, later string
		ok                bool
	}{
		{"", "run --var=API_TOKEN=hunter2-hunter2", secret, false},
		{secret, "run", secret, true},
		{secret, "run", "{}", false},
		{"", "run --base-url=http://me:hunter2-hunter2@h", "base-url: http://other\n", false},
		{"base-url: http://me:hunter2-hunter2@h\n", "run", "base-url: http://other\n", true},
	} {
		user, _ := configure(t, tt.user, "")
		app := (&program{}).app()
		first, err := parseCommandLine(app, strings.Fields(tt.args))
		if err == nil {
			err = first.addSettings(app, programLine{})
		}
		if err != nil {
			t.Fatal(err)
		}
		record, err := (&program{line: first}).recordLine(nil)
		var before programLine
		if err == nil {
			err = json.Unmarshal(record, &before)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(user, []byte(tt.later), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := parseCommandLine(app, []string{"run"})
		if err == nil {
			err = again.addSettings(app, before)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := again.checkAgain(before); (err == nil) != tt.ok {
			t.Errorf("%s, then %s: %v", tt.args, tt.later, err)
		}
	}
}

// TestRepositoryKeys checks that a repository that is not trusted widens nothing: each key that a
// file may have is an error, but for those that are listed.
func TestRepositoryKeys(t *testing.T) {
	app := (&program{}).app()
	allowed := slices.Concat(repositoryKeys[:], limitKeys[:], []string{"deny", "ask"})
	for _, f := range uniqueFlags(allFlags(app)) {
		name := f.Names()[0]
		value := map[bool]string{true: "1m", false: "1"}[strings.HasSuffix(name, "timeout")]
		switch f.(type) {
		case *cli.BoolFlag:
			value = "true"
		case *cli.DurationFlag:
			value = "1m"
		case *cli.StringSliceFlag:
			value = "[shell]"
		}
		switch name {
		case "model":
			value = "openai/p"
		case "network":
			value = "none"
		case "workdir":
			value = "sub"
		}
		t.Run(name, func(t *testing.T) {
			_, project := configure(t, "", name+": "+value+"\n")
			r := settingsReader{line: &commandLine{}}
			err := r.read(app.Command(runName).Flags)
			if slices.Contains(allowed, name) {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var usage *usageError
			if !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), project+":1: "+name+" ") {
				t.Errorf("%v", err)
			}
			if len(r.ofProject) > 0 {
				t.Errorf("it sets %v", r.ofProject)
			}
		})
	}
}

func TestProjectMistakes(t *testing.T) {
	for content, want := range map[string]string{
		"model: openai-compatible/m": `PROJECT:1: model: a repository may select models of openai, ` +
			`anthropic, gemini only, not "openai-compatible/m"`,
		"\nmodel: script:evil.yaml": `PROJECT:2: model: a repository may select models of openai, ` +
			`anthropic, gemini only, not "script:evil.yaml"`,
		"network: full":     `PROJECT:1: network: a repository may set none only, not "full"`,
		"read-only: false":  "PROJECT:1: read-only: a repository may set true only",
		"max-turns: 0":      `PROJECT:1: max-turns: "0" is no limit, and a repository lifts none`,
		"timeout: -1s":      `PROJECT:1: timeout: "-1s" is no limit, and a repository lifts none`,
		"max-cost: nan":     `PROJECT:1: max-cost: "nan" is no limit, and a repository lifts none`,
		"memory: much":      `PROJECT:1: memory: "much" is no limit, and a repository lifts none`,
		"workdir: ..":       `PROJECT:1: workdir: ".." is not in the directory of the repository`,
		"workdir: /":        `PROJECT:1: workdir: "/" is not in the directory of the repository`,
		"profiles: {}":      "PROJECT:1: profiles belongs in USER only",
		"a: 1\ntrusted: []": "PROJECT:1: a is unknown (\"config schema\" has the keys)",
		"trusted: [/]":      "PROJECT:1: trusted belongs in USER only",
		"deny: ['a b:c']": `PROJECT:1: deny: "a b:c" is not of the form PERMISSION:PATTERN, such as ` +
			`'shell:git status *'`,
		"yes: true": "PROJECT:1: yes is never set in a file; give it as a flag",
	} {
		t.Run(content, func(t *testing.T) {
			user, project := configure(t, "", content)
			app := (&program{}).app()
			l := commandLine{command: runName}
			err := l.addSettings(app, programLine{})
			want := strings.NewReplacer("USER", user, "PROJECT", project).Replace(want)
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// TestProjectFile checks where the file of a project is found, and that it is in the project.
func TestProjectFile(t *testing.T) {
	app := (&program{}).app()
	model := func(dir, env string) (string, error) {
		l := commandLine{command: runName}
		if dir != "" {
			l.flags = []string{"--env=" + env, "--workdir=" + dir}
		}
		err := l.addSettings(app, programLine{})
		return l.value("model"), err
	}
	_, project := configure(t, "", "model: openai/p\n")
	root := filepath.Dir(project)
	check := func(step, dir, env, want string) {
		t.Helper()
		if got, err := model(dir, env); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", step, got, err, want)
		}
	}
	check("the root", "", "", "openai/p")
	t.Chdir("sub")
	check("below it", "", "", "openai/p")
	t.Chdir(t.TempDir())
	check("elsewhere", "", "", "")
	for env, want := range map[string]string{"local": "openai/p", "docker": "openai/p", "ssh": ""} {
		check(env, filepath.Join(root, "sub"), env, want)
	}
	l := commandLine{command: runName}
	err := l.addSettings(app, programLine{Dir: filepath.Join(root, "sub")})
	if got := l.value("model"); got != "openai/p" || err != nil {
		t.Errorf("a session of the project: %q, %v", got, err)
	}
	if err := os.Remove(filepath.Join(root, ".git")); err != nil {
		t.Fatal(err)
	}
	check("below a directory that is no repository", filepath.Join(root, "sub"), "local", "")
	check("a directory that is no repository", root, "local", "openai/p")

	outside := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(outside, []byte("model: openai/o\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replaced := func(step string, replace func() error, want string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(project), replace()); err != nil {
			t.Skipf("%s: %v", step, err)
		}
		got, err := model(root, "local")
		if text := project + want; got != "" || err == nil || err.Error() != text {
			t.Errorf("%s: %q, %v, want %s", step, got, err, text)
		}
	}
	replaced("too long", func() error {
		return os.WriteFile(project, make([]byte, maxConfig+1), 0o600)
	}, " cannot be read: "+project+" has more than 1048576 bytes")
	replaced("a directory", func() error { return os.Mkdir(project, 0o700) },
		" cannot be read: it is not a regular file")
	replaced("a symlink", func() error { return os.Symlink(outside, project) },
		" cannot be read: path escapes from parent")
}

func TestParseConfig(t *testing.T) {
	flags := fileFlags()
	for content, want := range map[string]string{
		"mdel: x":                "f:1: mdel is unknown; did you mean model?",
		"m: x":                   `f:1: m is unknown ("config schema" has the keys)`,
		"session: x":             "f:1: session is never set in a file; give it as a flag",
		"- a":                    "f:1: keys with values are required, such as model: openai/gpt-5",
		"model: a\nmodel: b":     "f:2: model is given twice",
		"model: [a]":             "f:1: model: one value is required, no list or mapping",
		"model: &a x\nimage: *a": "f:2: image: one value is required, no list or mapping",
		"model:":                 "f:1: model is empty; give it a value or leave it out",
		"model: ' '":             "f:1: model is empty; give it a value or leave it out",
		"model: true":            "f:1: model: true is not a text; put it in quotes",
		"model: !x y":            `f:1: model: a value of the kind "!x" is not known`,
		"keep: yes":              `f:1: keep: "yes" is not a boolean; use true or false`,
		"max-turns: many":        `f:1: max-turns: "many" is not a whole number`,
		"max-turns: 1.5":         `f:1: max-turns: "1.5" is not a whole number`,
		"timeout: 90":            `f:1: timeout: "90" is not a duration such as 90s, 10m or 1h30m`,
		"cpus: many":             `f:1: cpus: "many" is not a number`,
		"var: A=1":               "f:1: var: a list is required, such as [A, B]",
		"var: [[A]]":             "f:1: var: one value is required, no list or mapping",
		"profiles: [a]":          "f:1: profiles: a mapping is required",
		"profiles: {a: 1}":       "f:1: profiles.a: a mapping is required",
		"profiles:\n  ci:\n    yes: true": "f:3: profiles.ci.yes is never set in a file; give it as a " +
			"flag",
		"profiles: {a: {profiles: {}}}": `f:1: profiles.a.profiles is unknown ("config schema" has the ` +
			`keys)`,
		"trusted: [here]":     `f:1: trusted: "here" is not the absolute name of a directory`,
		"model: a\n b: c":     "f:2: mapping values are not allowed in this context",
		"model: a\n---\nb: c": "f has more than one document, or a mistake after it",
		"[a]: b":              "f:1: a key is not a name",
	} {
		_, err := parseConfig([]byte(content), "f", flags)
		if err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", content, err, want)
		}
	}
	t.Setenv("HOME", filepath.FromSlash("/home/me"))
	t.Setenv("USERPROFILE", filepath.FromSlash("/home/me"))
	c, err := parseConfig([]byte("sandbox: off\nuser: 1000\ncpus: 0.5\nlabel: []\n"+
		"writable-root: True\ntrusted: [~/p]\n"), "f", flags)
	if err != nil {
		t.Fatal(err)
	}
	got := append([]string{}, c.trusted...)
	for _, s := range c.keys {
		got = append(got, s.subject()+"="+strings.Join(s.values, ","))
	}
	want := []string{
		filepath.FromSlash("/home/me/p"), "f:1: sandbox=off", "f:2: user=1000", "f:3: cpus=0.5",
		"f:5: writable-root=True",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestConfigSchema checks that the schema has each flag that a file may set, and no other.
func TestConfigSchema(t *testing.T) {
	flags := fileFlags()
	data, err := json.Marshal(configSchema(flags))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Type, Enum any
		}
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Properties) != len(flags)+2 { // profiles and trusted
		t.Errorf("%d properties for %d flags", len(schema.Properties), len(flags))
	}
	for key, want := range map[string]any{
		"keep": "boolean", "max-turns": "integer", "cpus": "number", "var": "array",
		"profiles": "object", "trusted": "array",
	} {
		if schema.Properties[key].Type != want {
			t.Errorf("%s is %v", key, schema.Properties[key].Type)
		}
	}
	if got := schema.Properties["sandbox"].Enum; !cmp.Equal(got, []any{"auto", "require", "off"}) {
		t.Errorf("sandbox is one of %v", got)
	}
	if _, ok := schema.Properties["yes"]; ok {
		t.Error("yes is in it")
	}
}

func FuzzParseConfig(f *testing.F) {
	flags := fileFlags()
	f.Add("model: openai/gpt-5\nvar: [A=1]\nprofiles: {ci: {timeout: 1m}}\ntrusted: [/a]\n")
	f.Add("a: &a [*a]\n? [b]\n: c\n<<: {keep: true}\n")
	f.Fuzz(func(t *testing.T, content string) {
		c, err := parseConfig([]byte(content), "f", flags)
		if err != nil {
			if usage := (*usageError)(nil); !errors.As(err, &usage) {
				t.Errorf("%v is no usage error", err)
			}
		}
		all := c.keys
		for _, p := range c.profiles {
			all = append(all, p...)
		}
		for _, s := range all {
			l := commandLine{}
			for _, v := range s.values {
				if err := l.add(findFlag(flags, s.name), v); err != nil {
					t.Error(err)
				}
			}
			if len(s.values) == 0 || !strings.HasPrefix(s.place, "f:") {
				t.Errorf("%+v", s)
			}
		}
	})
}
