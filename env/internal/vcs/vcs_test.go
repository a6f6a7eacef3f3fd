package vcs_test

import (
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/vcs"
)

func TestFolders(t *testing.T) {
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
		{"git", false, false},
		{".gitignore", false, false},
		{".git~1", false, false},
		{"~1", false, false},
		{"", false, false},
		{".", false, false},
		{"..", false, false},
	} {
		if is, maybe := vcs.IsFolder(tt.name), vcs.MayBeFolder(tt.name); is != tt.is ||
			maybe != tt.maybe {
			t.Errorf("%q: %t, %t; want %t, %t", tt.name, is, maybe, tt.is, tt.maybe)
		}
	}
}
