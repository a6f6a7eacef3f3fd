package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compareSettings(t *testing.T, want, got []setting) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(setting{})); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestParseConfig(t *testing.T) {
	tests := []struct {
		name, config string
		want         []setting
	}{
		{"empty", "", nil},
		{"plain", "[core]\n\tbare = false\n", []setting{{"core", "", "bare", "false", false}}},
		{"letter case", "[CORE]\nFileMode=TRUE", []setting{{"core", "", "filemode", "TRUE", false}}},
		{"subsection", "[Remote \"Or\\\"i\\gin\"]\nurl = x\n", []setting{{
			"remote", `Or"igin`, "url", "x",
			false,
		}}},
		{"old subsection", "[Branch.Main]\nremote = x\n", []setting{{
			"branch", "main", "remote", "x",
			false,
		}}},
		{"bare key", "[a]\nb\nc ; comment\nd\t# x\n", []setting{{"a", "", "b", "", true}, {
			"a", "", "c",
			"", true,
		}, {"a", "", "d", "", true}}},
		{"on one line", "[a] b = c\n", []setting{{"a", "", "b", "c", false}}},
		{"comments", "# x\n;y\n[a] ; z\nb = c # d\ne = \"f # g\" ; h\n", []setting{{
			"a", "", "b", "c",
			false,
		}, {"a", "", "e", "f # g", false}}},
		{"quotes", `[a]` + "\n" + `b = x " y " z  ` + "\n" + `c = "\"\\\n\t"`, []setting{{
			"a", "", "b",
			"x  y  z", false,
		}, {"a", "", "c", "\"\\\n\t", false}}},
		{"continued", "[a]\nb = c \\\n  d\\\r\ne\n", []setting{{"a", "", "b", "c   de", false}}},
		{"line ends", "\xef\xbb\xbf[a]\r\nb = c\r\nd\r\n", []setting{
			{"a", "", "b", "c", false},
			{"a", "", "d", "", true},
		}},
		{"empty value", "[a]\nb =\nc = \"\"\n", []setting{{"a", "", "b", "", false}, {
			"a", "", "c", "",
			false,
		}}},
		{"two sections", "[a]\nb=1\n[c \"d\"]\ne=2\n[a]\nf=3", []setting{
			{"a", "", "b", "1", false},
			{"c", "d", "e", "2", false},
			{"a", "", "f", "3", false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseConfig([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			compareSettings(t, tt.want, got)
			again, err := parseConfig(formatConfig(got))
			if err != nil {
				t.Fatal(err)
			}
			compareSettings(t, got, again)
		})
	}
	for _, bad := range []string{
		"[", "[]", "[a", "[a \"b]", "[a b]", "[a \"b\" ]", "x = y", "[a]\n= b", "[a]\nb c",
		"[a]\nb = \"c", "[a]\nb = \\x", "[a]\n1b = c", "[a \"b\nc\"]",
	} {
		if got, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

// The parser and git read the same settings.
func TestParseConfigAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to compare with")
	}
	for _, config := range []string{
		"[a]\nb = x \" y \" z  \n", "[a]\nb = c \\\n  d\\\ne\n", "[a]\nb\n[c \"D\\\"\\e\"]\nf = 1;2\n",
		"[A.B]\nC = d\n",
		"[a]\r\nb = c\r\n", "[a]b=c", "[a]\nb=\"\\t\\n\\b\"\n", "[a]\nb = \\", "[a]\nb = x\\\n",
		"[a]\nb = \"x\\\ny\"\n", "[a-b.c-d]\ne-f=g\n",
		"[a]\nb = \"c\"\r\n", "[a]\nb = c\v\n",
	} {
		name := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		out, gitErr := exec.Command("git", "config", "--file", name, "--null", "--list").Output()
		settings, err := parseConfig([]byte(config))
		if (err == nil) != (gitErr == nil) {
			t.Errorf("%q: git: %v, the parser: %v", config, gitErr, err)
			continue
		}
		var got strings.Builder
		for _, s := range settings {
			got.WriteString(s.section)
			if s.subsection != "" {
				got.WriteString("." + s.subsection)
			}
			got.WriteString("." + s.key)
			if !s.bare {
				got.WriteString("\n" + s.value)
			}
			got.WriteByte(0)
		}
		if diff := cmp.Diff(string(out), got.String()); diff != "" {
			t.Errorf("%q (-git +parser):\n%s", config, diff)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x:y@example.com/z\n"))
	f.Add([]byte("[a \"b\\\"\"]\r\nc = \"d\\n\" \\\n e # f\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		settings, err := parseConfig(data)
		if err != nil {
			return
		}
		again, err := parseConfig(formatConfig(settings))
		if err != nil {
			t.Fatalf("%v\n%s", err, formatConfig(settings))
		}
		compareSettings(t, settings, again)
		for _, s := range sanitise(settings) {
			if strings.ContainsAny(s.value, "\n\x00") || s.key == "url" && strings.Contains(s.value, "@") {
				t.Errorf("%+v is uploaded", s)
			}
		}
	})
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"https://example.com/a.git", "https://example.com/a.git"},
		{"https://user@example.com/a.git", "https://example.com/a.git"},
		{"https://user:pass@example.com:8443/a%20b?token=x#y", "https://example.com:8443/a%20b"},
		{"HTTPS://user:pass@example.com/a", "https://example.com/a"},
		{"https://user:p@ss@example.com/a", "https://example.com/a"},
		{"https://user:p/ss@example.com/a", ""},
		{"https://user:1/ss@example.com/a", ""},
		{"user:pass@example.com", ""},
		{"https://:pass@example.com/a", "https://example.com/a"},
		{"ssh://git@example.com/a", "ssh://example.com/a"},
		{"git@example.com:a/b.git", "example.com:a/b.git"},
		{"user:pass@example.com:a/b.git", "example.com:a/b.git"},
		{"[::1]:a/b", ""},
		{"file:///srv/a.git", "file:///srv/a.git"},
		{"/srv/a.git", "/srv/a.git"},
		{"../a.git", "../a.git"},
		{`C:\a\b`, `C:\a\b`},
		{"ext::sh -c x", ""},
		{"helper::https://x", ""},
		{"unknown://example.com/x", ""},
		{"a@b", ""},
		{"https://exa\nmple.com", ""},
	} {
		if got, ok := address(tt.in); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%q gives %q, %v, want %q", tt.in, got, ok, tt.want)
		}
	}
}
