package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const strict = `{
	"type": "object",
	"properties": {
		"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1},
		"list": {"type": "array", "items": {
			"type": "object", "properties": {"kind": {"enum": ["x", "y"]}}}}
	},
	"required": ["name"],
	"additionalProperties": false
}`

func echo() Tool {
	t := fake("echo", strict, func(_ context.Context, call *Call) (Result, error) {
		return Result{Text: string(call.Args)}, nil
	})
	t.Aliases = map[string]string{"title": "name"}
	return t
}

func TestArguments_9_3_3(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, tt := range []struct {
		name, arguments string
		kind            ErrorKind
		want            string
	}{
		{"good", `{"name":"a"}`, "", `{"name":"a"}`},
		{"space around", " {\"name\": \"a\"}\n", "", `{"name": "a"}`},
		{"alias", `{"title":"a","count":3}`, "", `{"count":3,"name":"a"}`},
		{"whole number with a point", `{"name":"a","count":2.0}`, "", `{"name":"a","count":2.0}`},
		{"empty", ``, KindValidation, "missing property 'name'"},
		{"null", `null`, KindValidation, "must be a JSON object"},
		{"array", `["a"]`, KindValidation, "must be a JSON object"},
		{"string with an object", `"{\"name\":\"a\"}"`, KindValidation, "must be a JSON object"},
		{
			"malformed", `{"name": "a"`, KindValidation,
			"are not valid JSON: after 12 of 12 bytes: unexpected end of JSON input",
		},
		{
			"malformed in the middle", `{"name": a}`, KindValidation,
			"are not valid JSON: after 10 of 11 bytes: invalid character 'a'",
		},
		{"two values", `{"name":"a"}{}`, KindValidation, "are not valid JSON"},
		{"wrong type", `{"name":7}`, KindValidation, "- name: got number, want string"},
		{
			"alias beside the name", `{"name":"a","title":"b"}`, KindValidation,
			"additional properties 'title' not allowed",
		},
		{"repeated key", `{"name":"a","name":"b"}`, KindValidation, "hold the key name twice"},
		{"keys that differ in case", `{"name":"a","NAME":"b"}`, KindValidation, "hold the keys"},
		{
			"repeated key inside", `{"name":"a","list":[{"k":1,"k":2}]}`, KindValidation,
			"hold the key k twice",
		},
		{
			"5 MB", `{"name":"` + long + `"}`, KindValidation,
			"are 5242891 bytes long, but at most 4194304 are allowed",
		},
		{
			"3 MB of the wrong type", `{"count":"` + long[:3<<20] + `"}`, KindValidation,
			"- count: got string, want integer",
		},
		{
			"long unknown key", `{"name":"a","` + long[:1<<20] + `":1}`, KindValidation,
			"additional properties",
		},
		{
			"nested too deep", `{"name":"a","list":` + deep + `}`, KindValidation,
			"nested more than 64 levels",
		},
		{
			"attack by exponent", `{"name":"a","count":1e999999999}`, KindValidation,
			"hold the number 1e999999999, which is out of range",
		},
		{
			"attack by a negative exponent", `{"name":"a","count":1E-999999999}`, KindValidation,
			"hold the number 1E-999999999, which is out of range",
		},
		{
			"number too large for an integer", `{"name":"a","count":1e300}`, "",
			`{"name":"a","count":1e300}`,
		},
		{
			"attack by digits", `{"name":"a","count":1` + strings.Repeat("0", 1<<20) + `}`, KindValidation,
			"which is out of range",
		},
		{
			"many problems",
			`{"a":1,"name":1,"count":"x","list":[{"kind":1},{"kind":2},{"kind":3},{"kind":4}]}`,
			KindValidation, "- and 2 more",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := registry(t, echo()).Run(t.Context(), Scope{}, llm.ToolCall{
				ID: "1", Name: "echo", Arguments: tt.arguments,
			})
			if kind(o) != tt.kind || o.Result.IsError != (tt.kind != "") {
				t.Errorf("kind %q, want %q", kind(o), tt.kind)
			}
			text := o.Result.Text()
			if tt.kind == "" && text != tt.want || !strings.Contains(text, tt.want) {
				t.Errorf("got  %q\nwant %q", cutRunes(text, 500), tt.want)
			}
			if len(text) > 1000 {
				t.Errorf("the result has %d bytes", len(text))
			}
			if tt.kind == "" && !json.Valid([]byte(text)) {
				t.Errorf("the tool got %q", text)
			}
		})
	}
}

func TestRun_9_3_2_UnknownTool(t *testing.T) {
	o := registry(t, fake("a", anyObject, nil), fake("b", anyObject, nil)).Run(t.Context(), Scope{},
		llm.ToolCall{ID: "7", Name: "c\x00" + strings.Repeat("d", 5000)})
	if kind(o) != KindUnknownTool || !strings.Contains(o.Result.Text(), "available tools: a, b") ||
		len(o.Result.Text()) > 1000 {
		t.Errorf("%s: %s", kind(o), o.Result.Text())
	}
	o = registry(t, []Tool{}...).Run(t.Context(), Scope{}, llm.ToolCall{Name: "c"})
	if kind(o) != KindUnknownTool {
		t.Errorf("got %q", kind(o))
	}
}

func TestRunOutcome(t *testing.T) {
	start := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	changes := []event.FileChange{{Path: "f", Kind: event.FileModified}}
	img := llm.Image{MIME: "image/png", Data: []byte("png")}
	tool := fake("t", anyObject, func(_ context.Context, call *Call) (Result, error) {
		_, _ = io.WriteString(call.Out, "written\n")
		return Result{
			Text: "said", Images: []llm.Image{img}, Changes: changes, Exit: &Exit{Code: 1}, Question: "why?",
		}, nil
	})
	var heard []string
	c := llm.ToolCall{ID: "7", Name: "t", Arguments: "{}"}
	o := registry(t, tool).Run(t.Context(), Scope{
		OnOutput: func(p []byte) { heard = append(heard, string(p)) }, Clock: &jumping{now: start},
	}, c)
	if o.Duration <= 0 || o.Duration > time.Minute {
		t.Errorf("the call took %s", o.Duration)
	}
	want := Outcome{
		Call: c, Result: llm.ToolResult{CallID: "7", Name: "t", Parts: []llm.Part{
			llm.Text("written\nsaid"), {Kind: llm.PartImage, Image: &img},
		}},
		Output: event.InlineOutput([]byte("written\nsaid")), Changes: changes, Exit: &Exit{Code: 1},
		Question: "why?", Started: start, Duration: o.Duration,
		Steps: []event.ToolStep{
			event.StepLookUp, event.StepValidate, event.StepExecute, event.StepCheck,
		},
	}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"written\n"}, heard); diff != "" {
		t.Error(diff)
	}
}

// jumping is a clock that goes back by an hour at each call.
type jumping struct{ now time.Time }

func (c *jumping) Now() time.Time {
	now := c.now
	c.now = now.Add(-time.Hour)
	return now
}

func TestRun_9_3_4_Errors(t *testing.T) {
	cause := errors.New("boom")
	path := func(err error) error { return &fs.PathError{Op: "open", Path: "f.txt", Err: err} }
	for _, tt := range []struct {
		name string
		err  error
		kind ErrorKind
		want string
	}{
		{"plain", cause, KindOther, "boom"},
		{
			"own", &Error{Kind: KindEditConflict, Message: "look again", Err: cause}, KindEditConflict,
			"look again",
		},
		{
			"own, wrapped", fmt.Errorf("x: %w", &Error{Kind: KindEditConflict, Message: "look again"}),
			KindEditConflict, "look again",
		},
		{"missing file", path(fs.ErrNotExist), KindNotFound, "f.txt does not exist"},
		{
			"no permission", path(fs.ErrPermission), KindPermission,
			"no permission: open f.txt: permission denied",
		},
		{"read-only", path(env.ErrReadOnly), KindPermission, "this environment is read-only"},
		{"changed", path(env.ErrChanged), KindEditConflict, "f.txt was changed by another process"},
		{"directory", path(env.ErrIsDir), KindOther, "f.txt is a directory"},
		{"not a directory", path(env.ErrNotDir), KindOther, "f.txt is not a directory"},
		{"device", path(env.ErrNotRegular), KindOther, "f.txt is a device"},
		{"disk full", path(env.ErrNoSpace), KindOther, "the disk is full"},
		{
			"bad pattern", fmt.Errorf("glob: %w", search.ErrBadPattern), KindValidation,
			"the pattern is malformed",
		},
		{
			"command not found", &env.StartError{Argv: []string{"gcc", "x"}, Err: fs.ErrNotExist},
			KindNotFound, "the command gcc does not exist",
		},
		{"closed", path(fs.ErrClosed), KindEnvironment, "the environment is closed"},
		{
			"gone", fmt.Errorf("exec: %w", env.ErrGone), KindEnvironment, "the environment no longer exists",
		},
		{
			"unknown outcome", fmt.Errorf("exec: %w", env.ErrUnknownOutcome), KindEnvironment,
			"may or may not have been done",
		},
		{
			"long name", &fs.PathError{Op: "open", Path: strings.Repeat("x", 5000), Err: fs.ErrNotExist},
			KindNotFound, "does not exist",
		},
		{
			"strange name", &fs.PathError{Op: "open", Path: "a\nb\x1b", Err: fs.ErrNotExist}, KindNotFound,
			`"a\nb\x1b" does not exist`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tool := fake("t", anyObject, func(_ context.Context, call *Call) (Result, error) {
				_, _ = io.WriteString(call.Out, "so far")
				return Result{Exit: &Exit{}, Changes: []event.FileChange{{Path: "done"}}}, tt.err
			})
			o := registry(t, tool).Run(t.Context(), Scope{}, llm.ToolCall{Name: "t"})
			text := o.Result.Text()
			if kind(o) != tt.kind || !o.Result.IsError || !strings.HasPrefix(text, "so far\n") ||
				!strings.Contains(text, tt.want) {
				t.Errorf("%s: %s", kind(o), text)
			}
			if len(text) > 1000 || o.Exit != nil || len(o.Changes) != 1 {
				t.Errorf("%d bytes, exit %v, changes %v", len(text), o.Exit, o.Changes)
			}
			var own *Error
			if !errors.Is(o.Err, tt.err) && !errors.As(tt.err, &own) {
				t.Errorf("the cause is lost: %v", o.Err)
			}
		})
	}
}

func TestRunIsErrorWithoutError(t *testing.T) {
	tool := fake("t", anyObject, func(context.Context, *Call) (Result, error) {
		return Result{Text: "no", IsError: true}, nil
	})
	o := registry(t, tool).Run(t.Context(), Scope{}, llm.ToolCall{Name: "t"})
	if diff := cmp.Diff(&Error{Kind: KindOther, Message: "no"}, o.Err); diff != "" ||
		!o.Result.IsError || o.Result.Text() != "no" {
		t.Errorf("%v\n%s", o.Result, diff)
	}
}

func TestRunNoOutput(t *testing.T) {
	tool := fake("t", anyObject, func(context.Context, *Call) (Result, error) { return Result{}, nil })
	o := registry(t, tool).Run(t.Context(), Scope{}, llm.ToolCall{Name: "t"})
	if o.Result.Text() != "[no output]" || o.Output.Size != 0 || o.Result.IsError {
		t.Errorf("%v, %d bytes", o.Result, o.Output.Size)
	}
}

func TestRunPanic_F28(t *testing.T) {
	var log bytes.Buffer
	tool := fake("t", anyObject, func(_ context.Context, call *Call) (Result, error) {
		_, _ = io.WriteString(call.Out, "so far\n")
		panic("secret" + strings.Repeat("x", 10_000))
	})
	o := registry(t, tool).Run(t.Context(), Scope{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		llm.ToolCall{ID: "7", Name: "t"})
	text := o.Result.Text()
	if kind(o) != KindPanic || !strings.HasPrefix(text, "so far\nthe tool t panicked (secret") ||
		len(text) > 1000 {
		t.Errorf("%s: %s", kind(o), text)
	}
	for _, want := range []string{"call=7", "run_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in the log", want)
		}
	}
	// Without a logger it is the same.
	o = registry(t, tool).Run(t.Context(), Scope{}, llm.ToolCall{Name: "t"})
	if kind(o) != KindPanic {
		t.Errorf("got %q", kind(o))
	}
}

func TestRunCanceled(t *testing.T) {
	why := errors.New("the user said stop")
	ran := false
	ctx, cancel := context.WithCancelCause(t.Context())
	tool := fake("t", anyObject, func(ctx context.Context, call *Call) (Result, error) {
		ran = true
		cancel(why)
		_, _ = io.WriteString(call.Out, "so far\n")
		<-ctx.Done()
		return Result{}, &fs.PathError{Op: "exec", Path: "x", Err: fmt.Errorf("%w: %w", ctx.Err(),
			context.Cause(ctx))}
	})
	o := registry(t, tool).Run(ctx, Scope{}, llm.ToolCall{Name: "t"})
	want := "so far\nthe call was canceled before it ended: the user said stop"
	if kind(o) != KindCanceled || o.Result.Text() != want || !errors.Is(o.Err, why) {
		t.Errorf("%s: %q", kind(o), o.Result.Text())
	}
	ran = false
	o = registry(t, tool).Run(ctx, Scope{}, llm.ToolCall{Name: "t"})
	if want := "the call was not started: the user said stop"; kind(o) != KindCanceled ||
		o.Result.Text() != want || ran {
		t.Errorf("%s: %q, ran: %v", kind(o), o.Result.Text(), ran)
	}
	// A call that succeeds in spite of the end of its context has succeeded, and a call that fails for
	// another reason reports that reason.
	for _, err := range []error{nil, errors.New("other")} {
		ctx, cancel := context.WithCancel(t.Context())
		tool := fake("t", anyObject, func(context.Context, *Call) (Result, error) {
			cancel()
			return Result{Text: "done"}, err
		})
		o := registry(t, tool).Run(ctx, Scope{}, llm.ToolCall{Name: "t"})
		if kind(o) == KindCanceled || (err == nil) == o.Result.IsError {
			t.Errorf("%v: %s", err, o.Result.Text())
		}
	}
}

func TestRunNeedsEnv(t *testing.T) {
	o := use(t, nil, "read_file", `{"file_path": "x"}`)
	check(t, o, KindEnvironment, "needs an environment")
}

func TestRun_9_5_Truncation(t *testing.T) {
	line := strings.Repeat("0123456789", 1<<20)
	write := func(text string) Tool {
		return fake("t", anyObject, func(_ context.Context, call *Call) (Result, error) {
			_, err := io.WriteString(call.Out, text)
			return Result{Text: "[end]"}, err
		})
	}
	outputs := func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }
	for _, tt := range []struct {
		name, text string
		limit      map[string]Limit
		chars      int
		want       string
	}{
		{"10 MB in one line", line, nil, 30_000, "output://out-1"},
		{"a session's limit", line, map[string]Limit{"t": {Chars: 100}}, 100, "output://out-1"},
		{
			"a session's limit of lines", numbered(5000),
			map[string]Limit{"t": {Lines: 10}},
			100, "with 4990 line breaks",
		},
		{"another tool's limit", "short", map[string]Limit{"u": {Chars: 1}}, 30_000, "short\n[end]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := registry(t, write(tt.text)).Run(t.Context(), Scope{
				Spool: dirSpool{dir: t.TempDir()}, Outputs: outputs, Limits: tt.limit,
			}, llm.ToolCall{ID: "out-1", Name: "t"})
			text := o.Result.Text()
			if n := utf8.RuneCountInString(text); n > tt.chars+300 {
				t.Errorf("the model sees %d characters", n)
			}
			if !strings.Contains(text, tt.want) || !strings.HasSuffix(text, "[end]") {
				t.Errorf("got %.500q", text)
			}
			if o.Truncated != strings.Contains(text, "Output shortened") {
				t.Errorf("truncated: %v", o.Truncated)
			}
			f, err := o.Output.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			all, err := io.ReadAll(f)
			if want := strings.TrimSuffix(tt.text, "\n") + "\n[end]"; err != nil || string(all) != want {
				t.Errorf("%d of %d bytes were kept: %v", len(all), len(want), err)
			}
		})
	}
}

// Every call, with any arguments, gets exactly one well-formed result.
func FuzzRun(f *testing.F) {
	f.Add("read_file", `{"file_path":"a.txt"}`)
	f.Add("edit_file", `{"file_path":"a.txt","old_string":"a","new_string":"b"}`)
	f.Add("apply_patch", `{"input":"*** Begin Patch\n*** Delete File: a.txt\n*** End Patch"}`)
	f.Add("grep", `{"pattern":"[","path":"output://x"}`)
	f.Add("shell", `{"command":"x","timeout_ms":1e3}`)
	f.Add("nothing", ``)
	r := registry(f)
	f.Fuzz(func(t *testing.T, name, arguments string) {
		m := newMemory(map[string]string{"a.txt": "a\n", "d/": ""})
		c := llm.ToolCall{ID: "1", Name: name, Arguments: arguments}
		o := r.Run(t.Context(), Scope{Env: m}, c)
		switch {
		case o.Call != c || o.Result.CallID != c.ID || o.Result.Name != c.Name:
			t.Fatalf("the result does not answer the call: %+v", o)
		case len(o.Result.Parts) == 0 || o.Result.Parts[0].Kind == llm.PartText &&
			o.Result.Parts[0].Text == "":
			t.Fatalf("the result is empty: %+v", o)
		case o.Result.IsError != (o.Err != nil):
			t.Fatalf("is_error %v, error %v", o.Result.IsError, o.Err)
		case !utf8.ValidString(o.Result.Text()) || strings.ContainsRune(o.Result.Text(), 0):
			t.Fatalf("the text %q is not fit for JSON", o.Result.Text())
		case kind(o) == KindPanic:
			t.Fatal(o.Err)
		}
	})
}
