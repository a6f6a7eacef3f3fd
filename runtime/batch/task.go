package batch

import (
	"bufio"
	"bytes"
	_ "embed" // for the schema
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Task is a line of a file of tasks. Fields but ID and Prompt are optional; they replace the
// settings of the batch.
type Task struct {
	// ID names the task, and a directory: a letter or digit, then letters, digits, dots, dashes and
	// underscores, at most 100. IDs that differ only in case are the same.
	ID     string `json:"id"`
	Prompt string `json:"prompt"`
	// Image is the container image of the environment.
	Image string `json:"image,omitempty"`
	// Workdir is the directory to work in or to upload. Archive is a file, .tar or .tar.gz, whose
	// content is the working directory. They exclude each other.
	Workdir string `json:"workdir,omitempty"`
	Archive string `json:"archive,omitempty"`
	// Upload lists more files for the environment, as SOURCE or SOURCE:TARGET.
	Upload []string `json:"upload,omitempty"`
	// Verify is a command that decides whether the task is done.
	Verify string            `json:"verify,omitempty"`
	Model  string            `json:"model,omitempty"`
	Limits Limits            `json:"limits,omitzero"`
	Labels map[string]string `json:"labels,omitempty"`
	// Line is that of the file that ReadTasks has read; zero for other tasks.
	Line int `json:"-"`
}

// Where names the task for a message about one of its fields: its line, if it has one, and its ID.
func (t Task) Where() string {
	if t.Line == 0 {
		return "task " + t.ID
	}
	return fmt.Sprintf("line %d: task %s", t.Line, t.ID)
}

// Limits bound one attempt at a task. Zero values are those of the batch.
type Limits struct {
	MaxTurns      int     `json:"max_turns,omitempty"`
	MaxToolRounds int     `json:"max_tool_rounds,omitempty"`
	MaxTokens     int64   `json:"max_tokens,omitempty"`
	MaxCostUSD    float64 `json:"max_cost,omitempty"`
	// Timeout is a duration as package time writes it, such as "10m".
	Timeout string `json:"timeout,omitempty"`
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema of a task.
func Schema() []byte { return bytes.Clone(schema) }

// Bounds of a file of tasks, in bytes of a line and in errors.
const (
	maxLine   = 16 << 20
	maxErrors = 20
)

// TaskError is a mistake in one line of a file of tasks.
type TaskError struct {
	Line int
	// Field is the name of the field, such as "limits.max_turns"; empty for the line as a whole.
	Field   string
	Message string
}

func (e *TaskError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Field, e.Message)
}

// ReadTasks reads tasks, one JSON object a line; blank lines are ignored. The error joins a
// *TaskError for each mistake, at most the first 20.
func ReadTasks(r io.Reader) ([]Task, error) {
	var tasks []Task
	var errs []error
	lines := make(map[string]int) // of the IDs, in lower case
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	n := 0
	for in.Scan() && len(errs) < maxErrors {
		n++
		line := bytes.TrimSpace(in.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		t, mistakes := parseTask(line)
		id := strings.ToLower(t.ID)
		if before := lines[id]; before > 0 && id != "" {
			mistakes = append(mistakes, &TaskError{
				Field: "id", Message: fmt.Sprintf("%q is the ID of line %d, too", t.ID, before),
			})
		} else {
			lines[id] = n
		}
		for _, m := range mistakes {
			m.Line = n
			errs = append(errs, m)
		}
		t.Line = n
		tasks = append(tasks, t)
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, &TaskError{
			Line: n + 1, Message: fmt.Sprintf("it has more than %d bytes", maxLine),
		})
	case err != nil:
		return nil, err
	case len(errs) == 0 && len(tasks) == 0:
		return nil, errors.New("there are no tasks")
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs[:min(len(errs), maxErrors)]...)
	}
	return tasks, nil
}

// parseTask decodes a line. The mistakes have no line.
func parseTask(line []byte) (t Task, mistakes []*TaskError) {
	unknown, err := kjson.UnmarshalStrict(line, &t)
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field != "":
		return t, []*TaskError{{
			Field: typ.Field, Message: fmt.Sprintf("a JSON %s is not %s", typ.Value, kindOf(typ)),
		}}
	case errors.As(err, &typ):
		return t, []*TaskError{{Message: "a task is a JSON object, not a JSON " + typ.Value}}
	case err != nil:
		return t, []*TaskError{{Message: "not a JSON object: " + err.Error()}}
	}
	for _, u := range unknown { // such as: unknown field "x"
		what, field, _ := strings.Cut(u.Error(), `"`)
		field = strings.TrimSuffix(field, `"`)
		message := strings.TrimSpace(what)
		if message == "unknown field" {
			message += " (known: " + known(field) + ")"
		}
		mistakes = append(mistakes, &TaskError{Field: field, Message: message})
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil && bytes.Contains(line, []byte("null")) {
		mistakes = append(mistakes, nulls("", fields)...)
	}
	return t, append(mistakes, t.check()...)
}

// nulls returns a mistake for each field that is null, with a prefix of their names.
func nulls(prefix string, fields map[string]json.RawMessage) (mistakes []*TaskError) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var inner map[string]json.RawMessage
		var list []json.RawMessage
		switch value := fields[name]; {
		case string(value) == "null":
			mistakes = append(mistakes, &TaskError{
				Field: prefix + name, Message: "it is null; leave it out",
			})
		case json.Unmarshal(value, &inner) == nil:
			mistakes = append(mistakes, nulls(prefix+name+".", inner)...)
		case json.Unmarshal(value, &list) == nil && slices.ContainsFunc(list,
			func(v json.RawMessage) bool { return string(v) == "null" }):
			mistakes = append(mistakes, &TaskError{
				Field: prefix + name, Message: "an element is null",
			})
		}
	}
	return mistakes
}

// kindOf describes the type of a field.
func kindOf(e *json.UnmarshalTypeError) string {
	switch name := e.Type.String(); {
	case strings.HasPrefix(name, "int"):
		return "a whole number"
	case strings.HasPrefix(name, "float"):
		return "a number"
	case strings.HasPrefix(name, "[]"):
		return "an array of strings"
	case name == "string":
		return "a string"
	}
	return "an object"
}

// known lists the fields beside one that is unknown.
func known(field string) string {
	if path.Dir(strings.ReplaceAll(field, ".", "/")) == "limits" {
		return "max_turns, max_tool_rounds, max_tokens, max_cost, timeout"
	}
	return "id, prompt, image, workdir, archive, upload, verify, model, limits, labels"
}

var validID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// check returns the mistakes in the values of t, without lines.
func (t Task) check() (mistakes []*TaskError) {
	bad := func(field, format string, args ...any) {
		mistakes = append(mistakes, &TaskError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case t.ID == "":
		bad("id", "it is missing")
	case !validID().MatchString(t.ID) || strings.HasSuffix(t.ID, "."):
		bad("id", "%q is not a letter or digit, followed by at most 99 letters, digits, dots, dashes "+
			"and underscores", t.ID)
	}
	if strings.TrimSpace(t.Prompt) == "" {
		bad("prompt", "it is missing")
	}
	for field, text := range map[string]string{
		"image": t.Image, "workdir": t.Workdir, "archive": t.Archive, "verify": t.Verify,
		"model": t.Model,
	} {
		if text != "" && strings.TrimSpace(text) == "" {
			bad(field, "it is blank")
		}
	}
	if t.Workdir != "" && t.Archive != "" {
		bad("archive", "it and workdir exclude each other")
	}
	if slices.Contains(t.Upload, "") {
		bad("upload", "an element is empty")
	}
	for field, n := range map[string]float64{
		"max_turns": float64(t.Limits.MaxTurns), "max_tool_rounds": float64(t.Limits.MaxToolRounds),
		"max_tokens": float64(t.Limits.MaxTokens), "max_cost": t.Limits.MaxCostUSD,
	} {
		if n < 0 || math.IsInf(n, 0) {
			bad("limits."+field, "%g is no limit", n)
		}
	}
	if text := t.Limits.Timeout; text != "" {
		if d, err := time.ParseDuration(text); err != nil || d <= 0 || strings.ContainsAny(text, "+μ") {
			bad("limits.timeout", "%q is not a duration such as 90s, 10m or 1h30m", text)
		}
	}
	slices.SortFunc(mistakes, func(a, b *TaskError) int { return strings.Compare(a.Field, b.Field) })
	return mistakes
}
