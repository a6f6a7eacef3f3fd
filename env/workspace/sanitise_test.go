package workspace

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

func FuzzSanitise(f *testing.F) {
	f.Add([]byte("[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x:y@example.com/z\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		settings, err := gitrepo.ParseConfig(data)
		if err != nil {
			return
		}
		for _, s := range sanitise(settings) {
			if strings.ContainsAny(s.Value, "\n\x00") || s.Key == "url" && strings.Contains(s.Value, "@") {
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
