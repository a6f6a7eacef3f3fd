package helper_test

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

func TestStderrTail(t *testing.T) {
	var s helper.StderrTail
	if got := s.String(); got != "" {
		t.Errorf("nothing is %q", got)
	}
	for _, text := range []string{"first\n", strings.Repeat("x", 3000), " \xff last \n"} {
		if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := s.String()
	if !strings.HasSuffix(got, "x \uFFFD last") || strings.Contains(got, "first") ||
		len(got) > 2<<10+2 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
