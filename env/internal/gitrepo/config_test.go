package gitrepo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compareSettings(t *testing.T, want, got []Setting) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestParseConfig(t *testing.T) {
	tests := []struct {
		name, config string
		want         []Setting
	}{
		{"empty", "", nil},
		{"plain", "[core]\n\tbare = false\n", []Setting{{"core", "", "bare", "false", false}}},
		{"letter case", "[CORE]\nFileMode=TRUE", []Setting{{"core", "", "filemode", "TRUE", false}}},
		{"subsection", "[Remote \"Or\\\"i\\gin\"]\nurl = x\n", []Setting{{
			"remote", `Or"igin`, "url", "x",
			false,
		}}},
		{"old subsection", "[Branch.Main]\nremote = x\n", []Setting{{
			"branch", "main", "remote", "x",
			false,
		}}},
		{"bare key", "[a]\nb\nc ; comment\nd\t# x\n", []Setting{{"a", "", "b", "", true}, {
			"a", "", "c",
			"", true,
		}, {"a", "", "d", "", true}}},
		{"on one line", "[a] b = c\n", []Setting{{"a", "", "b", "c", false}}},
		{"comments", "# x\n;y\n[a] ; z\nb = c # d\ne = \"f # g\" ; h\n", []Setting{{
			"a", "", "b", "c",
			false,
		}, {"a", "", "e", "f # g", false}}},
		{"quotes", `[a]` + "\n" + `b = x " y " z  ` + "\n" + `c = "\"\\\n\t"`, []Setting{{
			"a", "", "b",
			"x  y  z", false,
		}, {"a", "", "c", "\"\\\n\t", false}}},
		{"continued", "[a]\nb = c \\\n  d\\\r\ne\n", []Setting{{"a", "", "b", "c   de", false}}},
		{"line ends", "\xef\xbb\xbf[a]\r\nb = c\r\nd\r\n", []Setting{
			{"a", "", "b", "c", false},
			{"a", "", "d", "", true},
		}},
		{"empty value", "[a]\nb =\nc = \"\"\n", []Setting{{"a", "", "b", "", false}, {
			"a", "", "c", "",
			false,
		}}},
		{"two sections", "[a]\nb=1\n[c \"d\"]\ne=2\n[a]\nf=3", []Setting{
			{"a", "", "b", "1", false},
			{"c", "d", "e", "2", false},
			{"a", "", "f", "3", false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			compareSettings(t, tt.want, got)
			again, err := ParseConfig(FormatConfig(got))
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
		if got, err := ParseConfig([]byte(bad)); err == nil {
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
		settings, err := ParseConfig([]byte(config))
		if (err == nil) != (gitErr == nil) {
			t.Errorf("%q: git: %v, the parser: %v", config, gitErr, err)
			continue
		}
		var got strings.Builder
		for _, s := range settings {
			got.WriteString(s.Section)
			if s.Subsection != "" {
				got.WriteString("." + s.Subsection)
			}
			got.WriteString("." + s.Key)
			if !s.Bare {
				got.WriteString("\n" + s.Value)
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
		settings, err := ParseConfig(data)
		if err != nil {
			return
		}
		again, err := ParseConfig(FormatConfig(settings))
		if err != nil {
			t.Fatalf("%v\n%s", err, FormatConfig(settings))
		}
		compareSettings(t, settings, again)
	})
}
