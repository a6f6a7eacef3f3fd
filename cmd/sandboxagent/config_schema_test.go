package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/sandboxagent.schema.json anew")

// TestSchemaFile compares the published schema of configuration files with that of the command.
func TestSchemaFile(t *testing.T) {
	const file = "../../docs/sandboxagent.schema.json"
	var out bytes.Buffer
	p := &program{std: newStreams(nil, &out, io.Discard)}
	if code := p.run(t.Context(), []string{"sandboxagent", "config", "schema"}); code != codeDone {
		t.Fatalf("exit code %d", code)
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s is out of date; run go test ./cmd/sandboxagent -run SchemaFile -update "+
			"(-want +got):\n%s", file, diff)
	}
}
