package batch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

const fullTask = `{"id":"a.1_b-C","prompt":"do it","image":"debian","workdir":"w",` +
	`"upload":["x:y","z"],"verify":"true","model":"openai/m","limits":{"max_turns":1,` +
	`"max_tool_rounds":2,"max_tokens":3,"max_cost":0.5,"timeout":"1h30m"},"labels":{"k":"v"}}`

func TestReadTasks(t *testing.T) {
	text := "\ufeff" + fullTask + "\n\n  \r\n" + `{"id":"b","prompt":"p","archive":"a.tar"}` + "\r\n"
	got, err := batch.ReadTasks(strings.NewReader(text))
	want := []batch.Task{{
		ID: "a.1_b-C", Prompt: "do it", Image: "debian", Workdir: "w", Upload: []string{"x:y", "z"},
		Verify: "true", Model: "openai/m", Limits: batch.Limits{
			MaxTurns: 1, MaxToolRounds: 2, MaxTokens: 3, MaxCostUSD: 0.5, Timeout: "1h30m",
		},
		Labels: map[string]string{"k": "v"}, Line: 1,
	}, {ID: "b", Prompt: "p", Archive: "a.tar", Line: 4}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

// badTasks are files with mistakes, and the start of each line of the error.
var badTasks = map[string][]string{
	"":                           {"there are no tasks"},
	"\n\n":                       {"there are no tasks"},
	"{":                          {"line 1: not a JSON object: "},
	"[]":                         {"line 1: a task is a JSON object, not a JSON array"},
	`"a"`:                        {"line 1: a task is a JSON object, not a JSON string"},
	`{"id":"a","prompt":"p"} {}`: {"line 1: not a JSON object: "},
	"{}":                         {"line 1: id: it is missing", "line 1: prompt: it is missing"},
	`{"id":1,"prompt":"p"}`:      {"line 1: id: a JSON number is not a string"},
	`{"id":"../a","prompt":"p"}`: {`line 1: id: "../a" is not a letter or digit`},
	`{"id":"a.","prompt":"p"}`:   {`line 1: id: "a." is not a letter or digit`},
	`{"id":"-a","prompt":" "}`:   {`line 1: id: "-a" is`, "line 1: prompt: it is missing"},
	`{"ID":"a","prompt":"p"}`: {
		"line 1: ID: unknown field (known: id, prompt, image",
		"line 1: id",
	},
	`{"id":"a","id":"b","prompt":"p"}`: {"line 1: id: duplicate field"},
	`{"id":"a","prompt":"p","upload":"x"}`: {
		"line 1: upload: a JSON string is not an array of strings",
	},
	`{"id":"a","prompt":"p","upload":[""]}`: {"line 1: upload: an element is empty"},
	`{"id":"a","prompt":"p","limits":{"max_turn":1}}`: {
		"line 1: limits.max_turn: unknown field (known: max_turns,",
	},
	`{"id":"a","prompt":"p","limits":{"max_turns":1.5}}`: {
		"line 1: limits.max_turns: a JSON number 1.5 is not a whole number",
	},
	`{"id":"a","prompt":"p","limits":{"max_turns":-1}}`: {"line 1: limits.max_turns: -1 is no limit"},
	`{"id":"a","prompt":"p","limits":{"timeout":"5"}}`: {
		`line 1: limits.timeout: "5" is not a duration such as`,
	},
	`{"id":"a","prompt":"p","limits":{"timeout":"-5s"}}`: {
		`line 1: limits.timeout: "-5s" is not a duration such as`,
	},
	`{"id":"a","prompt":"p","limits":{"timeout":"0h0.0s"}}`: {
		`line 1: limits.timeout: "0h0.0s" is not a duration such as`,
	},
	`{"id":"a","prompt":"p","limits":{"timeout":"0s"},"upload":[null],"labels":null}`: {
		"line 1: labels: it is null; leave it out", "line 1: upload: an element is null",
		`line 1: limits.timeout: "0s" is not a duration such as`,
		"line 1: upload: an element is empty",
	},
	`{"id":"a","prompt":"p","verify":" "}`: {"line 1: verify: it is blank"},
	`{"id":"a","prompt":"p","workdir":"w","archive":"a"}`: {
		"line 1: archive: it and workdir exclude each other",
	},
	"{\"id\":\"a\",\"prompt\":\"p\"}\n\n{\"id\":\"A\",\"prompt\":\"p\"}": {
		`line 3: id: "A" is the ID of line 1, too`,
	},
	"{\"prompt\":\"p\"}\n{\"prompt\":\"p\"}": {
		"line 1: id: it is missing", "line 2: id: it is missing",
	},
}

func TestBadTasks(t *testing.T) {
	for text, want := range badTasks {
		tasks, err := batch.ReadTasks(strings.NewReader(text))
		if err == nil {
			t.Errorf("%s: accepted as %+v", text, tasks)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		ok := len(lines) == len(want)
		for i := range min(len(lines), len(want)) {
			ok = ok && strings.HasPrefix(lines[i], want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", text, lines, want)
		}
	}
}

func TestManyMistakes(t *testing.T) {
	_, err := batch.ReadTasks(strings.NewReader(strings.Repeat("{}\n", 1000)))
	if n := strings.Count(err.Error(), "\n") + 1; n != 20 {
		t.Errorf("%d mistakes are reported", n)
	}
	long := `{"id":"a","prompt":"` + strings.Repeat("x", 16<<20) + `"}`
	_, err = batch.ReadTasks(strings.NewReader("\n" + long))
	if err == nil || err.Error() != "line 2: it has more than 16777216 bytes" {
		t.Errorf("a long line: %v", err)
	}
}

// taskSchema returns the published schema.
func taskSchema(tb testing.TB) *jsonschema.Resolved {
	tb.Helper()
	var s jsonschema.Schema
	err := json.Unmarshal(batch.Schema(), &s)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestSchema has tasks that both the schema and the reader accept, or neither does. Duplicates are
// beyond a schema.
func TestSchema(t *testing.T) {
	s := taskSchema(t)
	valid := func(text string) bool {
		var v any
		return json.Unmarshal([]byte(text), &v) == nil && s.Validate(v) == nil
	}
	if !valid(fullTask) {
		t.Error("the schema rejects a task with all fields")
	}
	for text := range badTasks {
		if !strings.Contains(text, "\n") && strings.Count(text, `"id"`) < 2 && valid(text) {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

// FuzzReadTasks has any text: what the reader accepts, the schema does.
func FuzzReadTasks(f *testing.F) {
	for text := range badTasks {
		f.Add(text)
	}
	f.Add(fullTask)
	s := taskSchema(f)
	f.Fuzz(func(t *testing.T, text string) {
		tasks, err := batch.ReadTasks(strings.NewReader(text))
		if err != nil {
			if err.Error() == "" {
				t.Error("an empty error")
			}
			return
		}
		n := 0
		for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
			if strings.TrimSpace(line) == "" {
				continue
			}
			n++
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(v); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if n != len(tasks) {
			t.Errorf("%d tasks in %d lines", len(tasks), n)
		}
	})
}
