package gitrepo

import "testing"

func TestControlNames(t *testing.T) {
	for _, tt := range []struct {
		name      string
		is, maybe bool
	}{
		{".git", true, true},
		{".hg", true, true},
		{".Git", true, true},
		{".git.", false, true},
		{".git . .", false, true},
		{".git::$INDEX_ALLOCATION", false, true},
		{".g\u200cit", false, true},
		{"git~1", false, true},
		{"GIT~1", false, true},
		{"hg~1", false, true},
		{".\u017fvn", true, true},
		{"git", false, false},
		{".gitignore", false, false},
		{".git~1", false, false},
		{"~1", false, false},
		{"", false, false},
		{".", false, false},
		{"..", false, false},
	} {
		if got := IsControlName(tt.name); got != tt.is {
			t.Errorf("IsControlName(%q) = %t", tt.name, got)
		}
		if got := MayBeControlName(tt.name); got != tt.maybe {
			t.Errorf("MayBeControlName(%q) = %t", tt.name, got)
		}
	}
}

func TestGitDirPart(t *testing.T) {
	for name, want := range map[string]string{
		"HEAD": Head, "head": Head, "HEAD. ": Head, "HE\u200cAD": Head, "Head::$DATA": Head,
		"objects": Objects, "OBJECT\u017f": Objects, "Refs.": Refs, "CommonDir": CommonDir,
		"HEADS": "", "HEAD.txt": "", "object": "", "": "", ".": "", ".git": "",
	} {
		if got := GitDirPart(name); got != want {
			t.Errorf("GitDirPart(%q) = %q, want %q", name, got, want)
		}
	}
}
