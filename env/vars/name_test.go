package vars_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/vars"
)

// tableNames returns the names in a table of testdata: each line has a name and its origin.
func tableNames(t testing.TB, file string) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		name, origin, ok := strings.Cut(line, "\t# ")
		if !ok || name == "" || strings.TrimSpace(origin) == "" {
			t.Fatalf("%s: the line %q is not a name, a tab and its origin", file, line)
		}
		names = append(names, name)
	}
	return names
}

// TestNameTables has real names of variables, of at least 300 secrets and 300 others.
func TestNameTables(t *testing.T) {
	t.Parallel()
	for file, secret := range map[string]bool{"secret-names.tsv": true, "harmless-names.tsv": false} {
		names := tableNames(t, file)
		if len(names) < 300 {
			t.Errorf("%s has %d names, want 300", file, len(names))
		}
		for _, name := range names {
			for _, name := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
				if got := vars.IsSecretName(name); got != secret {
					t.Errorf("%s: IsSecretName(%q) = %v", file, name, got)
				}
			}
			if kept := (&vars.Filter{OS: "linux"}).Apply([]string{name + "=x"}); (len(kept) == 0) != secret {
				t.Errorf("%s: the filter keeps %q of %s", file, kept, name)
			}
			pass := &vars.Filter{OS: "linux", Pass: []string{name}}
			if len(pass.Apply([]string{name + "=x"})) != 1 {
				t.Errorf("%s: a filter that passes %s does not keep it", file, name)
			}
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"OPENAI_API_KEY":        true,
		"openai_api_key":        true,
		"openaiApiKey":          true,
		"Db_Password":           true,
		"DB_PASSWD":             true,
		"AWS_SECRET_ACCESS_KEY": true,
		"MY_ACCESS_KEY_2":       true,
		"TOKEN1":                true,
		"SECRET2_VALUE":         true,
		"X_CREDENTIAL":          true,
		"WIFI_PSK":              true,
		"X-Api-Key":             true,
		"Proxy-Authorization":   true,
		"clientSecret":          true,
		"dbPwd":                 true,
		"s3Key":                 true,
		"gitHubPat":             true,
		"MYSQLPASS":             true,
		"MAX_API_KEYS":          true,
		"API_TOKENS":            true,
		"MY_CONN_STR":           true,
		"A\nB_TOKEN":            true,
		"ÄPFEL_TOKEN":           true,
		"PATH":                  false,
		"TOKENIZER":             false,
		"MAX_TOKENS":            false,
		"API_KEY_FILE":          false,
		"API_KEY_FILE_2":        false,
		"SECRETARY_NAME":        false,
		"MONKEY":                false,
		"COMPAT":                false,
		"AUTHORS":               false,
		"BYPASS":                false,
		"STRING_CONNECTION":     false,
		"PUBLIC_KEY":            false,
		"pwd":                   false,
		"":                      false,
		"_":                     false,
		"42":                    false,
	} {
		if got := vars.IsSecretName(name); got != want {
			t.Errorf("IsSecretName(%q) = %v, want %v", name, got, want)
		}
	}
}

// BenchmarkFilter filters 200 variables, as CI systems set them.
func BenchmarkFilter(b *testing.B) {
	var list []string
	for i, name := range append(tableNames(b, "harmless-names.tsv")[:150],
		tableNames(b, "secret-names.tsv")[:50]...) {
		value := "/home/runner/work/_temp/_runner_file_commands/set_env_87406d6e"
		switch i % 10 {
		case 0:
			value = "https://github.com/sandboxagent/sandboxagent/pull/17/files"
		case 1:
			value = strings.Repeat("/usr/local/sbin:", 16)
		case 2, 3, 4, 5:
			value = "true"
		}
		list = append(list, name+"="+value)
	}
	var filter vars.Filter
	for b.Loop() {
		filter.Apply(list)
	}
}
