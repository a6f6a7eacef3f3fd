package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// exchangeOf returns an exchange that reads its answer from body.
func exchangeOf(body io.Reader) *Exchange {
	return &Exchange{
		endpoint: &Endpoint{
			Config: Config{IdleTimeout: time.Hour, Provider: "openai"}, redact: redactor(nil),
		},
		body: io.NopCloser(body), status: 200, idle: time.NewTimer(time.Hour),
		cause: func() (error, bool) { return nil, false },
	}
}

// eventsOf returns the data of all events of body.
func eventsOf(body io.Reader) ([]string, error) {
	r := newEventReader(exchangeOf(body))
	var events []string
	for {
		data, err := r.next()
		if len(data) > 0 {
			events = append(events, string(data))
		}
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
	}
}

func TestEventReader(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
	}{
		"nothing":            {"", nil},
		"one":                {"data: {}\n\n", []string{"{}"}},
		"no space":           {"data:{}\n\n", []string{"{}"}},
		"CRLF":               {"data: {}\r\n\r\ndata: []\r\n\r\n", []string{"{}", "[]"}},
		"other fields":       {": c\nevent: x\nid: 1\nfoo\ndata: {}\n\n: c\n\n", []string{"{}"}},
		"several data lines": {"data: {\ndata: \ndata: }\n\n", []string{"{  }"}},
		"no last empty line": {"data: {}\n", []string{"{}"}},
		"no last line end":   {"data: {}", []string{"{}"}},
		"empty data":         {"data:\n\ndata\n\ndata: {}\n\n", []string{"{}"}},
		"byte order mark":    {"\ufeffdata: {}\n\n", []string{"{}"}},
		"not data":           {"database: {}\n\n", nil},
	}
	for name, tt := range tests {
		for how, body := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in), "bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			got, err := eventsOf(body)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%s, %s: %v (-want +got):\n%s", name, how, err, diff)
			}
		}
	}
}

// endless is a body that never ends and has no line ends.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	const block = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	n := 0
	for n < len(p) {
		n += copy(p[n:], block)
	}
	e.read += n
	return n, nil
}

func TestEventReaderLimits(t *testing.T) {
	tests := map[string]string{
		"line without end":        "data: ",
		"comment without end":     ": ",
		"many data lines":         strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 16),
		"line without a field":    "",
		"begins after many lines": strings.Repeat("data: {}\n\n", 1000),
	}
	for name, start := range tests {
		body := &endless{}
		events, err := eventsOf(io.MultiReader(strings.NewReader(start), body))
		if !errors.Is(err, llm.ErrAnswerTooLarge) ||
			!strings.Contains(err.Error(), "an event is longer than 16 MiB") {
			t.Errorf("%s: got %v", name, err)
		}
		if body.read > maxEvent+(1<<20) || len(events) != strings.Count(start, "{}") {
			t.Errorf("%s: %d bytes were read and %d events returned", name, body.read, len(events))
		}
	}
}

// The lines of one event count together.
func TestEventOfManyLinesIsLimited(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	_, err := eventsOf(strings.NewReader(strings.Repeat(line, 17) + "\n"))
	if !errors.Is(err, llm.ErrAnswerTooLarge) {
		t.Errorf("17 lines of 1 MiB: %v", err)
	}
	if _, err = eventsOf(strings.NewReader(strings.Repeat(line+"\n", 17))); err != nil {
		t.Errorf("17 events of 1 MiB: %v", err)
	}
}

func TestRetryAfterDate(t *testing.T) {
	now := time.Now() // of both headers, which have no fractions of seconds
	h := http.Header{"Retry-After": {now.Add(time.Hour).UTC().Format(http.TimeFormat)}}
	if d, ok := retryAfter(h); !ok || d < 59*time.Minute || d > time.Hour {
		t.Errorf("got %s, %t", d, ok)
	}
	h.Set("Date", now.Add(50*time.Minute).UTC().Format(http.TimeFormat))
	if d, ok := retryAfter(h); !ok || d != 10*time.Minute {
		t.Errorf("by the server's clock: got %s, %t", d, ok)
	}
}

func TestBodyLimit(t *testing.T) {
	x := exchangeOf(&endless{})
	x.read = llm.MaxAnswer - 10
	n, err := io.Copy(io.Discard, x)
	if !errors.Is(err, llm.ErrAnswerTooLarge) ||
		!strings.Contains(err.Error(), "longer than 32 MiB") || n > 64<<10 {
		t.Errorf("got %v after %d bytes", err, n)
	}
}

func TestMergePatch(t *testing.T) {
	tests := map[string]struct{ target, patch, want string }{
		"adds":                {`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`},
		"replaces":            {`{"a":1}`, `{"a":[2]}`, `{"a":[2]}`},
		"removes":             {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"removes nothing":     {`{}`, `{"a":null}`, `{}`},
		"merges objects":      {`{"a":{"b":1,"c":2}}`, `{"a":{"c":3,"d":null}}`, `{"a":{"b":1,"c":3}}`},
		"object for a value":  {`{"a":1}`, `{"a":{"b":1,"c":null}}`, `{"a":{"b":1}}`},
		"value for an object": {`{"a":{"b":1}}`, `{"a":1}`, `{"a":1}`},
		"keeps digits": {
			`{"a":9007199254740993,"b":1.10}`, `{"c":9007199254740993}`,
			`{"a":9007199254740993,"b":1.10,"c":9007199254740993}`,
		},
	}
	for name, tt := range tests {
		got, err := mergePatches(json.RawMessage(tt.target), json.RawMessage(tt.patch))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, tt.want)
		}
	}
	got, err := mergePatches(json.RawMessage(`{"a": 1, "b": {"x": [1, 2]}}`),
		json.RawMessage(`{"a":null,"c":{"d":1}}`), json.RawMessage(`{"c":{"d":null,"e":"<"}}`))
	if want := `{"b":{"x": [1, 2]},"c":{"e":"<"}}`; err != nil || string(got) != want {
		t.Errorf("several patches: got %s, %v; want %s", got, err, want)
	}
	if _, err := mergePatches(json.RawMessage(`{`), json.RawMessage(`{}`)); err == nil {
		t.Error("broken JSON is merged")
	}
}

func TestRefusalOfOddBodies(t *testing.T) {
	for body, want := range map[string]Refusal{
		``:                         {},
		`[]`:                       {Message: "[]"},
		`{`:                        {Message: "{"},
		`{"error":null}`:           {Message: `{"error":null}`},
		`{"message":"m"}`:          {Message: "m", Found: true},
		`{"detail":"d"}`:           {Message: "d", Found: true},
		`{"error":"e","code":7}`:   {Message: "e", Code: "7", Found: true},
		"<html>\xff<title>x":       {Message: "a web page: x"},
		"<HTML><body>İ<title>x":    {Message: "a web page without a title"},
		"<!doctype html><p>bare":   {Message: "a web page without a title"},
		"plain \xff text":          {Message: "plain  text"},
		`{"error":{"code":"c"}}`:   {Code: "c", Found: true},
		`{"error":{"message":""}}`: {Found: true},
	} {
		if diff := cmp.Diff(want, parseRefusal([]byte(body), "")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", body, diff)
		}
	}
}

// Each error in an error is copied, so only a few are read.
func TestRefusalOfErrorsInErrors(t *testing.T) {
	const depth = 1000
	body := []byte(strings.Repeat(`{"error":`, depth) + `{"message":"` + strings.Repeat("x", 1<<20) +
		`"}` + strings.Repeat("}", depth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if info := RefusalOf(body); !info.Found {
		t.Errorf("got %.100q", info.Message)
	}
	runtime.ReadMemStats(&after)
	if n := int(after.TotalAlloc - before.TotalAlloc); n > 20*len(body) {
		t.Errorf("%d MiB were allocated for %d KiB", n>>20, len(body)>>10)
	}
}

func TestHasMoreValues(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `"a"`: 0, `{}`: 1, `[1,2,3]`: 3, `{"a":[1,2],"b":"x,y[{"}`: 4, `{"a\"":"\\","b":1}`: 2,
		`"\`: 0, `["`: 1, `[",,,`: 1, `{"a":"\\\",,","b":[]}`: 3,
	} {
		data := []byte(text + strings.Repeat(" ", 10))
		if hasMoreValues(data, want) || want > 0 && !hasMoreValues(data, want-1) {
			t.Errorf("%s has not %d values", text, want)
		}
	}
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: {\"error\":1}\r\n\r\n: c\ndata:x\ndata: y\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := eventsOf(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		pieces, err := eventsOf(iotest.OneByteReader(bytes.NewReader(stream)))
		if diff := cmp.Diff(whole, pieces); err != nil || diff != "" {
			t.Errorf("%v (-whole +in pieces):\n%s", err, diff)
		}
	})
}
