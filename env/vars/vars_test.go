package vars_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	envvars "github.com/sandboxagent/sandboxagent/env/vars"
)

const (
	all, filtered, core, none = envvars.All, envvars.Filtered, envvars.Core, envvars.None
	// Put together so that no scanner takes this file for a leak.
	fakeKey = "sk-" + "proj-Ab3dEf6hIj9kLm2nOp5q"
)

func TestVarFilter(t *testing.T) {
	t.Parallel()
	// Each variable stands with the strictest mode that keeps it; the laxer ones keep it too. VarsNone
	// stands for a variable that no mode keeps.
	tests := []struct {
		goos, v string
		by      envvars.Mode
	}{
		{"linux", "PATH=/usr/bin:/bin", core},
		{"linux", "HOME=/root", core},
		{"linux", "USER=me", core},
		{"linux", "SHELL=/bin/bash", core},
		{"linux", "LANG=C.UTF-8", core},
		{"linux", "LC_ALL=C", core},
		{"linux", "TERM=xterm", core},
		{"linux", "TMPDIR=/tmp", core},
		{"linux", "GOPATH=/go", core},
		{"linux", "CARGO_HOME=/cargo", core},
		{"linux", "NVM_DIR=/nvm", core},
		{"linux", "HOME=", core},

		{"linux", "EDITOR=vi", filtered},
		{"linux", "EMPTY=", filtered},
		{"linux", "EQUALS=a=b=c", filtered},
		{"linux", "path=/usr/bin", filtered},
		{"linux", "SYSTEMROOT=x", filtered},
		{"linux", "PATHS=x", filtered},
		{"linux", "GOFLAGS=-mod=mod", filtered},
		{"linux", "MAX_TOKENS=5", filtered},
		{"linux", "API_KEY_FILE=/run/key", filtered},
		{"linux", "http_proxy=http://proxy:8080", filtered},
		{"linux", "GIT_URL=ssh://git@host/x", filtered},

		{"linux", "OPENAI_API_KEY=x", all},
		{"linux", "openai_api_key=x", all},
		{"linux", "APP_SECRET=x", all},
		{"linux", "Npm_Token=x", all},
		{"linux", "DB_PASSWORD=x", all},
		{"linux", "DB_PASSWD=x", all},
		{"linux", "X_CREDENTIAL=x", all},
		{"linux", "X_CREDENTIALS=x", all},
		{"linux", "TLS_PRIVATE_KEY=x", all},
		{"linux", "AWS_SECRET_ACCESS_KEY=x", all},
		{"linux", "AWS_ACCESS_KEY=x", all},
		{"linux", "EMPTY_TOKEN=", all},
		{"linux", "HARMLESS=" + fakeKey, all},
		{"linux", "DATABASE_URL=postgres://app:pw@db/app", all},
		{"linux", "https_proxy=http://u:p@proxy:8080", all},
		{"linux", "HOME=" + fakeKey, all},
		{"linux", "LC_API_KEY=x", all},

		{"linux", "NOEQ", none},
		{"linux", "=x", none},
		{"linux", "=C:=C:\\dir", none},
		{"linux", "", none},
		{"linux", "A=b\x00c", none},
		{"linux", "A\x00B=c", none},

		{"windows", "Path=C:\\Windows", core},
		{"windows", "SystemRoot=C:\\Windows", core},
		{"windows", "windir=C:\\Windows", core},
		{"windows", "ComSpec=C:\\Windows\\cmd.exe", core},
		{"windows", "PATHEXT=.EXE", core},
		{"windows", "TEMP=C:\\t", core},
		{"windows", "tmp=C:\\t", core},
		{"windows", "USERPROFILE=C:\\Users\\me", core},
		{"windows", "Lc_All=C", core},
		{"windows", "OS=Windows_NT", filtered},
		{"windows", "My_Token=x", all},
	}
	for _, tt := range tests {
		t.Run(tt.goos+" "+tt.v, func(t *testing.T) {
			t.Parallel()
			order := []envvars.Mode{none, core, filtered, all}
			for i, mode := range order {
				want := tt.by != none && i >= slices.Index(order, tt.by)
				f := &envvars.Filter{Mode: mode, OS: tt.goos}
				if got := f.Apply([]string{tt.v}); (len(got) == 1) != want {
					t.Errorf("mode %s gives %q, want it kept: %v", mode, got, want)
				}
			}
		})
	}
}

func TestVarFilterDefaults(t *testing.T) {
	t.Parallel()
	vars := []string{"Z=1", "X_TOKEN=x", "A=2", "Z=3"}
	want := []string{"Z=1", "A=2", "Z=3"}
	for name, f := range map[string]*envvars.Filter{"nil": nil, "zero": {}} {
		if diff := cmp.Diff(want, f.Apply(vars)); diff != "" {
			t.Errorf("%s filter (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"Z=1", "X_TOKEN=x", "A=2", "Z=3"}, vars); diff != "" {
		t.Errorf("Apply altered its argument:\n%s", diff)
	}
	if got := (&envvars.Filter{Mode: "typo"}).Apply(vars); len(got) > 0 {
		t.Errorf("a mode that does not exist keeps %q, want nothing", got)
	}
	for _, mode := range []envvars.Mode{none, core, filtered, all} {
		if got := (&envvars.Filter{Mode: mode}).Apply(nil); got == nil {
			t.Errorf("mode %s gives nil for no variables, which os/exec takes for all of them", mode)
		}
	}
}

func TestVarFilterPass(t *testing.T) {
	t.Parallel()
	vars := []string{"A=1", "X_TOKEN=x", "KEY=" + fakeKey, "x_token=y"}
	for _, mode := range []envvars.Mode{none, core, "typo"} {
		f := &envvars.Filter{Mode: mode, Pass: []string{"KEY", "X_TOKEN", "ABSENT"}, OS: "linux"}
		if diff := cmp.Diff([]string{"X_TOKEN=x", "KEY=" + fakeKey}, f.Apply(vars)); diff != "" {
			t.Errorf("mode %s (-want +got):\n%s", mode, diff)
		}
	}
	f := &envvars.Filter{Pass: []string{"X_TOKEN"}, OS: "windows"}
	if diff := cmp.Diff([]string{"A=1", "X_TOKEN=x", "x_token=y"}, f.Apply(vars)); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
}

// TestCoreNames proves that the names that a caller can print are those that are used.
func TestCoreNames(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, pattern := range envvars.CoreNames(goos) {
			v := strings.ReplaceAll(pattern, "*", "SOME") + "=x"
			if got := (&envvars.Filter{Mode: core, OS: goos}).Apply([]string{v}); len(got) != 1 {
				t.Errorf("pattern %s does not keep %s on %s", pattern, v, goos)
			}
		}
	}
	clear(envvars.CoreNames("linux"))
	if got := (&envvars.Filter{Mode: core, OS: "linux"}).Apply([]string{
		"PATH=x",
		"A_TOKEN=x",
	}); len(got) != 1 {
		t.Errorf("after a caller changed the patterns, core keeps %q", got)
	}
}

// TestVarFilterGitSettings proves that git gets its settings in variables all or not at all: it
// fails if one of them is missing.
func TestVarFilterGitSettings(t *testing.T) {
	t.Parallel()
	harmless := []string{
		"GIT_CONFIG_COUNT=1", "A=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	if diff := cmp.Diff(harmless, (&envvars.Filter{}).Apply(harmless)); diff != "" {
		t.Errorf("harmless settings (-want +got):\n%s", diff)
	}
	for name, vars := range map[string][]string{
		"value": {"GIT_CONFIG_KEY_0=http.extraheader", "GIT_CONFIG_VALUE_0=AUTHORIZATION: basic eDp5"},
		"name":  {"GIT_CONFIG_KEY_0=url.https://u:p@h/.insteadOf", "GIT_CONFIG_VALUE_0=https://h/"},
	} {
		vars = append(vars, "A=1", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_1=a.b", "GIT_CONFIG_VALUE_1=c")
		if diff := cmp.Diff([]string{"A=1"}, (&envvars.Filter{}).Apply(vars)); diff != "" {
			t.Errorf("secret %s (-want +got):\n%s", name, diff)
		}
		f := &envvars.Filter{}
		for _, v := range vars {
			name, _, _ := envvars.Split(v)
			f.Pass = append(f.Pass, name)
		}
		if diff := cmp.Diff(vars, f.Apply(vars)); diff != "" {
			t.Errorf("secret %s, passed (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []envvars.Mode{none, core, filtered, all} {
		if got, err := envvars.ParseMode(string(mode)); got != mode || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v", mode, got, err)
		}
	}
	for _, s := range []string{"", "ALL", "some", " all"} {
		got, err := envvars.ParseMode(s)
		if err == nil || !strings.Contains(err.Error(), "filtered, all, core, none") {
			t.Errorf("ParseMode(%q) = %q, %v, want an error with all modes", s, got, err)
		}
	}
}

func TestDedupVars(t *testing.T) {
	t.Parallel()
	vars := []string{"A=1", "B=1", "NOEQ", "a=2", "A=3", "NOEQ", "=x", "C="}
	for goos, want := range map[string][]string{
		"linux":   {"B=1", "NOEQ", "a=2", "A=3", "NOEQ", "=x", "C="},
		"windows": {"B=1", "NOEQ", "A=3", "NOEQ", "=x", "C="},
	} {
		before := slices.Clone(vars)
		if diff := cmp.Diff(want, envvars.Dedup(vars, goos)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", goos, diff)
		}
		if diff := cmp.Diff(before, vars); diff != "" {
			t.Errorf("DedupVars altered its argument:\n%s", diff)
		}
	}
	if got := envvars.Dedup(nil, "linux"); got == nil {
		t.Error("DedupVars gives nil for no variables, which os/exec takes for all of them")
	}
}
