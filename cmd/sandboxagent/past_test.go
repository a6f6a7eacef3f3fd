package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

func TestProjectOf(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	for _, tt := range []struct {
		line programLine
		want string
	}{
		{programLine{Dir: dir}, dir},
		{programLine{Dir: dir, Flags: []string{"--env=docker", "--workdir=other"}}, other},
		{programLine{Dir: dir, Flags: []string{"--workdir=" + other}}, other},
		{programLine{Dir: other, Project: dir}, dir},
		{
			programLine{Dir: dir, Project: dir, Flags: []string{"--env=ssh", "--host=u@h", "--workdir=/w/"}},
			"ssh://u@h//w",
		},
		{programLine{Dir: dir, Flags: []string{"--env=ssh", "--host=h"}}, "ssh://h/."},
	} {
		data, err := json.Marshal(tt.line)
		if err != nil {
			t.Fatal(err)
		}
		if got := projectOf(data); got != tt.want {
			t.Errorf("%s: %s, want %s", data, got, tt.want)
		}
	}
	if got := projectOf(json.RawMessage("1")); got != "" {
		t.Errorf("not a program line: %s", got)
	}
}
