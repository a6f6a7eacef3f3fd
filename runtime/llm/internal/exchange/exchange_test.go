package exchange

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// exchangeOf is an exchange that reads its answer from body.
func exchangeOf(body io.Reader) *Exchange {
	x := &Exchange{
		endpoint: &Endpoint{
			idle: time.Hour, provider: "openai",
			redact: redactor(nil),
		}, body: io.NopCloser(body), status: 200,
		idle: time.NewTimer(time.Hour), cause: func() (error, bool) { return nil, false },
	}
	return x
}

func TestEventReader(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"nothing":  {"", ""},
		"one":      {"data: {}\n\n", "data: {}\n\n"},
		"no space": {"data:{}\n\n", "data: {}\n\n"},
		"CRLF":     {"data: {}\r\n\r\ndata: []\r\n\r\n", "data: {}\n\ndata: []\n\n"},
		"other fields": {
			": c\nevent: x\nid: 1\nretry: 2\nfoo\ndata: {}\n\n: c\n\n",
			"data: {}\n\n",
		},
		"several data lines": {"data: {\ndata: \ndata: }\n\n", "data: {  }\n\n"},
		"no last empty line": {"data: {}\n", "data: {}\n\n"},
		"no last line end":   {"data: {}", "data: {}\n\n"},
		"empty data":         {"data:\n\ndata\n\ndata: {}\n\n", "data: {}\n\n"},
		"byte order mark":    {"\ufeffdata: {}\n\n", "data: {}\n\n"},
		"error first":        {"data: {\"error\":1}\n\n", "data: { \"error\":1}\n\n"},
		"not data":           {"database: {}\n\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader} {
				got, err := io.ReadAll(newEventReader(exchangeOf(wrap(strings.NewReader(tt.in)))))
				if err != nil || string(got) != tt.want {
					t.Errorf("%s: got %q, %v; want %q", how, got, err, tt.want)
				}
			}
		})
	}
}

func TestEventNames(t *testing.T) {
	for in, want := range map[string]string{
		"event: a\ndata: {}\n\n":                "event: a\ndata: {}\n\n",
		"data: 1\r\nevent:a\r\n\r\ndata: 2\n\n": "event: a\ndata: 1\n\ndata: 2\n\n",
		"event: a\n\ndata: 1\n\n":               "data: 1\n\n",
		"eventful: a\ndata: 1\n\n":              "data: 1\n\n",
	} {
		x := exchangeOf(strings.NewReader(in))
		x.endpoint.names = true
		if got, err := io.ReadAll(newEventReader(x)); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
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
		n, err := io.Copy(io.Discard, newEventReader(exchangeOf(io.MultiReader(strings.NewReader(start),
			body))))
		if llm.KindOf(err) != llm.KindStream || !strings.Contains(err.Error(),
			"an event is longer than 16 MiB") {
			t.Errorf("%s: got %v", name, err)
		}
		if body.read > maxEvent+(1<<20) || n > 1<<20 {
			t.Errorf("%s: %d bytes were read and %d passed on", name, body.read, n)
		}
	}
}

// The lines of one event count together.
func TestEventOfManyLinesIsLimited(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	_, err := io.Copy(io.Discard, newEventReader(exchangeOf(strings.NewReader(strings.Repeat(line,
		17)+"\n"))))
	if llm.KindOf(err) != llm.KindStream {
		t.Errorf("17 lines of 1 MiB: %v", err)
	}
	_, err = io.Copy(io.Discard, newEventReader(exchangeOf(strings.NewReader(strings.Repeat(line+"\n",
		17)))))
	if err != nil {
		t.Errorf("17 events of 1 MiB: %v", err)
	}
}

func TestRetryAfterDateByOwnClock(t *testing.T) {
	h := http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}
	if d, ok := retryAfter(h); !ok || d < 59*time.Minute || d > time.Hour {
		t.Errorf("got %s, %t", d, ok)
	}
	h.Set("Date", time.Now().Add(50*time.Minute).UTC().Format(http.TimeFormat))
	if d, ok := retryAfter(h); !ok || d != 10*time.Minute {
		t.Errorf("by the server's clock: got %s, %t", d, ok)
	}
}

func TestBodyLimit(t *testing.T) {
	x := exchangeOf(&endless{})
	x.read = maxBody - 10
	n, err := io.Copy(io.Discard, x)
	if llm.KindOf(err) != llm.KindStream || !strings.Contains(err.Error(), "longer than 256 MiB") ||
		n > 64<<10 {
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

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: {\"error\":1}\r\n\r\n: c\ndata:x\ndata: y\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := io.ReadAll(newEventReader(exchangeOf(bytes.NewReader(stream))))
		if err != nil {
			t.Fatal(err)
		}
		pieces, err := io.ReadAll(newEventReader(exchangeOf(iotest.OneByteReader(bytes.NewReader(stream)))))
		if err != nil || !bytes.Equal(whole, pieces) {
			t.Errorf("whole %q, in pieces %q, %v", whole, pieces, err)
		}
		for line := range bytes.Lines(whole) {
			if len(line) > 1 && !bytes.HasPrefix(line, []byte("data: ")) || bytes.HasPrefix(line,
				[]byte(`data: {"error":`)) {
				t.Errorf("line %q", line)
			}
		}
	})
}
