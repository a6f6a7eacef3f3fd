package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// maxScript bounds the size of a script in bytes.
const maxScript = 16 << 20

// Script is a parsed script. Playing does not change it.
type Script struct {
	// Name is the name of the script in messages, such as its file name.
	Name string
	// Model is the model of the answers; empty means that of the request.
	Model string
	Turns []Turn
}

// Turn is one answer of the model, with conditions on its request.
type Turn struct {
	// Line is the line of the turn in the script, from 1.
	Line      int
	Expect    Expect
	Reasoning string
	Text      string
	Calls     []llm.ToolCall
	Usage     llm.Usage
	Finish    llm.FinishReason
	// Delay is the wait before the answer.
	Delay time.Duration
	// Error is the error of the turn, after Reasoning and Text; nil for a complete answer.
	Error *llm.Error
}

// ParseScript parses a script. The name is used in messages only. Errors have name and line.
func ParseScript(data []byte, name string) (*Script, error) {
	if len(data) > maxScript {
		return nil, fmt.Errorf("%s: a script of %d bytes is longer than the limit of %d",
			name, len(data), maxScript)
	}
	var file fileScript
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: the script is empty", name)
		}
		return nil, located(name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a script is a single YAML document", name)
	}
	if len(file.Turns) == 0 {
		return nil, fmt.Errorf("%s: the script has no turns", name)
	}
	lines := turnLines(data)
	s := &Script{Name: name, Model: file.Model}
	for i, ft := range file.Turns {
		line := 0
		if i < len(lines) {
			line = lines[i]
		}
		turn, err := ft.turn(i + 1)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: turn %d: %w", name, line, i+1, err)
		}
		turn.Line = line
		s.Turns = append(s.Turns, turn)
	}
	return s, nil
}

// turnLines returns the line of each turn of valid data.
func turnLines(data []byte) []int {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	var lines []int
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "turns" {
			for _, n := range root.Content[i+1].Content {
				lines = append(lines, n.Line)
			}
		}
	}
	return lines
}

// located prefixes each message of a YAML error with the name of the script and the line.
func located(name string, err error) error {
	messages := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var te *yaml.TypeError
	if errors.As(err, &te) {
		messages = te.Errors
	}
	line := regexp.MustCompile(`^line (\d+): (?s:(.*))$`)
	unknown := regexp.MustCompile(`^field (\S+) not found in type \S+$`)
	var errs []error
	for _, msg := range messages {
		at := name
		if m := line.FindStringSubmatch(msg); m != nil {
			at, msg = name+":"+m[1], m[2]
		}
		msg = unknown.ReplaceAllString(msg, `unknown field "$1"`)
		errs = append(errs, fmt.Errorf("%s: %s", at, strings.ReplaceAll(msg, "replay.file", "")))
	}
	return errors.Join(errs...)
}

// The file… types are the YAML form of a script.
type fileScript struct {
	Model string     `yaml:"model"`
	Turns []fileTurn `yaml:"turns"`
}

type fileTurn struct {
	Expect    fileExpect   `yaml:"expect"`
	Reasoning string       `yaml:"reasoning"`
	Text      string       `yaml:"text"`
	Calls     []fileCall   `yaml:"calls"`
	Usage     fileUsage    `yaml:"usage"`
	Finish    string       `yaml:"finish"`
	Delay     fileDuration `yaml:"delay"`
	Error     *fileError   `yaml:"error"`
}

type fileCall struct {
	Tool string   `yaml:"tool"`
	ID   *string  `yaml:"id"`
	Args fileArgs `yaml:"args"`
}

type fileUsage struct {
	Input      int64 `yaml:"input"`
	Output     int64 `yaml:"output"`
	Reasoning  int64 `yaml:"reasoning"`
	CacheRead  int64 `yaml:"cache_read"`
	CacheWrite int64 `yaml:"cache_write"`
}

type fileError struct {
	Kind       string        `yaml:"kind"`
	Status     int           `yaml:"status"`
	Code       string        `yaml:"code"`
	Message    string        `yaml:"message"`
	RetryAfter *fileDuration `yaml:"retry_after"`
}

// turn validates and converts the turn number, from 1.
func (ft fileTurn) turn(number int) (Turn, error) {
	t := Turn{
		Reasoning: ft.Reasoning, Text: ft.Text, Delay: time.Duration(ft.Delay),
		Finish: llm.FinishReason(ft.Finish),
		Usage:  llm.Usage(ft.Usage),
	}
	var err error
	if t.Expect, err = ft.Expect.expect(); err != nil {
		return Turn{}, err
	}
	for i, fc := range ft.Calls {
		if fc.Tool == "" {
			return Turn{}, fmt.Errorf("call %d: tool is missing", i+1)
		}
		call := llm.ToolCall{
			ID: fmt.Sprintf("call_%d_%d", number, i+1), Name: fc.Tool,
			Arguments: fc.Args.text,
		}
		if fc.ID != nil {
			call.ID = *fc.ID
		}
		if !fc.Args.given {
			call.Arguments = "{}"
		}
		t.Calls = append(t.Calls, call)
	}
	switch t.Finish {
	case llm.FinishStop, llm.FinishToolCalls, llm.FinishLength, llm.FinishContentFilter:
	case "":
		t.Finish = llm.FinishStop
		if len(t.Calls) > 0 {
			t.Finish = llm.FinishToolCalls
		}
	default:
		return Turn{}, fmt.Errorf("finish %q is not one of stop, tool_calls, length, content_filter",
			ft.Finish)
	}
	if ft.Error != nil {
		if len(t.Calls) > 0 || ft.Finish != "" {
			return Turn{}, errors.New("a turn with error has neither calls nor finish")
		}
		if t.Error, err = ft.Error.convert(); err != nil {
			return Turn{}, err
		}
		return t, nil
	}
	if t.Text == "" && t.Reasoning == "" && len(t.Calls) == 0 && ft.Finish == "" {
		return Turn{}, errors.New("the turn answers nothing: give text, calls or error, or finish for " +
			"an empty answer")
	}
	return t, nil
}

// errorKinds are the kinds of errors that a script can simulate.
var errorKinds = []llm.ErrorKind{
	llm.KindNetwork, llm.KindTimeout, llm.KindRateLimit, llm.KindOverloaded, llm.KindServer,
	llm.KindStream, llm.KindAuth,
	llm.KindQuota, llm.KindNotFound, llm.KindContextLength, llm.KindInvalid, llm.KindContentFilter,
}

func (fe fileError) convert() (*llm.Error, error) {
	kind := llm.ErrorKind(fe.Kind)
	if kind == "" {
		kind = kindOfStatus(fe.Status)
	}
	if !slices.Contains(errorKinds, kind) {
		return nil, fmt.Errorf("error: kind %q is not one of %s; give kind, or a status that implies it",
			fe.Kind, list(errorKinds))
	}
	if fe.Status != 0 && (fe.Status < 200 || fe.Status > 599) {
		return nil, fmt.Errorf("error: %d is not an HTTP status", fe.Status)
	}
	e := &llm.Error{
		Kind: kind, Provider: "script", Status: fe.Status, Code: fe.Code,
		Message: fe.Message,
	}
	if e.Message == "" {
		e.Message = "simulated by the script"
	}
	if fe.RetryAfter != nil {
		e.HasRetryAfter, e.RetryAfter = true, time.Duration(*fe.RetryAfter)
	}
	return e, nil
}

// kindOfStatus returns the kind of an HTTP status, or "".
func kindOfStatus(status int) llm.ErrorKind {
	switch {
	case status == 401 || status == 403:
		return llm.KindAuth
	case status == 404:
		return llm.KindNotFound
	case status == 408:
		return llm.KindTimeout
	case status == 413:
		return llm.KindContextLength
	case status == 429:
		return llm.KindRateLimit
	case status == 529:
		return llm.KindOverloaded
	case status >= 500 && status <= 599:
		return llm.KindServer
	case status >= 400 && status <= 499:
		return llm.KindInvalid
	}
	return ""
}

func list[T ~string](items []T) string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = string(item)
	}
	return strings.Join(names, ", ")
}
