package replay

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Expect has the conditions of a turn on its request. The zero value has none.
type Expect struct {
	// System is a condition on the instructions of the request.
	System Text
	// User is a condition on all user messages, one below the other.
	User Text
	// Result is a condition on the newest tool result; may be nil.
	Result *Result
	// Results are conditions on all results of the newest tool calls, in order; may be nil.
	Results []Result
	// Tools are names of tools that the request must have, among others.
	Tools []string
}

// Text is a condition on a text.
type Text struct {
	Contains    []string
	NotContains []string
	// Matches must match in the text; may be nil.
	Matches *regexp.Regexp
}

// Result is a condition on a tool result.
type Result struct {
	// Tool is the name of the tool; empty means any.
	Tool string
	// IsError is the IsError of the result; nil means either.
	IsError *bool
	Text    Text
}

type fileExpect struct {
	System  fileText     `yaml:"system"`
	User    fileText     `yaml:"user"`
	Result  *fileResult  `yaml:"result"`
	Results []fileResult `yaml:"results"`
	Tools   fileStrings  `yaml:"tools"`
}

type fileText struct {
	Contains    fileStrings `yaml:"contains"`
	NotContains fileStrings `yaml:"not_contains"`
	Matches     string      `yaml:"matches"`
}

type fileResult struct {
	Tool     string `yaml:"tool"`
	IsError  *bool  `yaml:"is_error"`
	fileText `yaml:",inline"`
}

func (fe fileExpect) expect() (Expect, error) {
	e := Expect{Tools: fe.Tools}
	var err error
	if e.System, err = fe.System.convert(); err != nil {
		return Expect{}, fmt.Errorf("expect: system: %w", err)
	}
	if e.User, err = fe.User.convert(); err != nil {
		return Expect{}, fmt.Errorf("expect: user: %w", err)
	}
	if fe.Result != nil {
		r, err := fe.Result.convertResult()
		if err != nil {
			return Expect{}, fmt.Errorf("expect: result: %w", err)
		}
		e.Result = &r
	}
	for i, fr := range fe.Results {
		r, err := fr.convertResult()
		if err != nil {
			return Expect{}, fmt.Errorf("expect: results: number %d: %w", i+1, err)
		}
		e.Results = append(e.Results, r)
	}
	return e, nil
}

func (ft fileText) convert() (Text, error) {
	t := Text{Contains: ft.Contains, NotContains: ft.NotContains}
	if ft.Matches != "" {
		re, err := regexp.Compile(ft.Matches)
		if err != nil {
			return Text{}, fmt.Errorf("matches: %w", err)
		}
		t.Matches = re
	}
	return t, nil
}

func (fr fileResult) convertResult() (Result, error) {
	text, err := fr.convert()
	return Result{Tool: fr.Tool, IsError: fr.IsError, Text: text}, err
}

// Check returns the first condition that req does not meet, as the end of a sentence, or "".
func (e Expect) Check(req llm.Request) string {
	if miss := e.System.check("the system prompt", req.System); miss != "" {
		return miss
	}
	if miss := e.User.check("the user messages", userText(req.Messages)); miss != "" {
		return miss
	}
	if miss := e.checkTools(req.Tools); miss != "" {
		return miss
	}
	results := newestResults(req.Messages)
	if e.Result != nil {
		if len(results) == 0 {
			return "expects a tool result, but the request has none"
		}
		if miss := e.Result.check("the last tool result", results[len(results)-1]); miss != "" {
			return miss
		}
	}
	if e.Results == nil {
		return ""
	}
	if len(results) != len(e.Results) {
		return fmt.Sprintf("expects %d tool results, but the request has %d%s",
			len(e.Results), len(results), names(results))
	}
	for i, want := range e.Results {
		if miss := want.check(fmt.Sprintf("tool result %d", i+1), results[i]); miss != "" {
			return miss
		}
	}
	return ""
}

func (e Expect) checkTools(tools []llm.ToolSpec) string {
	var offered []string
	has := make(map[string]bool)
	for _, t := range tools {
		offered = append(offered, t.Name)
		has[t.Name] = true
	}
	for _, want := range e.Tools {
		if !has[want] {
			return fmt.Sprintf("expects the tool %s to be offered; offered are: %s", want,
				orNone(strings.Join(offered, ", ")))
		}
	}
	return ""
}

func (r Result) check(what string, got llm.ToolResult) string {
	text := got.Text()
	if r.Tool != "" && r.Tool != got.Name {
		return fmt.Sprintf("expects %s to be of %s; it is of %s: %s", what, r.Tool, orNone(got.Name),
			excerpt(text))
	}
	if r.IsError != nil && *r.IsError != got.IsError {
		want, is := "a success", "an error"
		if *r.IsError {
			want, is = is, want
		}
		return fmt.Sprintf("expects %s to be %s; it is %s: %s", what, want, is, excerpt(text))
	}
	return r.Text.check(what, text)
}

func (t Text) check(what, text string) string {
	for _, want := range t.Contains {
		if !strings.Contains(text, want) {
			return fmt.Sprintf("expects %s to contain %q; the nearest there: %s",
				what, want, nearest(text, want))
		}
	}
	for _, bad := range t.NotContains {
		if i := strings.Index(text, bad); i >= 0 {
			return fmt.Sprintf("expects %s not to contain %q; it does: %s", what, bad,
				excerpt(lineAt(text, i)))
		}
	}
	if t.Matches != nil && !t.Matches.MatchString(text) {
		return fmt.Sprintf("expects %s to match %q; it is: %s", what, t.Matches, excerpt(text))
	}
	return ""
}

func userText(messages []llm.Message) string {
	var texts []string
	for _, m := range messages {
		if m.Role == llm.RoleUser {
			texts = append(texts, m.Text())
		}
	}
	return strings.Join(texts, "\n")
}

// newestResults returns the tool results after the last message that has tool calls.
func newestResults(messages []llm.Message) []llm.ToolResult {
	var results []llm.ToolResult
	for _, m := range messages {
		if len(m.ToolCalls()) > 0 {
			results = nil
		}
		for _, p := range m.Parts {
			if p.Kind == llm.PartToolResult && p.ToolResult != nil {
				results = append(results, *p.ToolResult)
			}
		}
	}
	return results
}

func names(results []llm.ToolResult) string {
	if len(results) == 0 {
		return ""
	}
	var all []string
	for _, r := range results {
		all = append(all, orNone(r.Name))
	}
	return ": " + strings.Join(all, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func lineAt(text string, i int) string {
	start := strings.LastIndexByte(text[:i], '\n') + 1
	end := strings.IndexByte(text[i:], '\n')
	if end < 0 {
		return text[start:]
	}
	return text[start : i+end]
}

// nearest returns the line of text that shares most with want, so that the reader sees the
// difference.
func nearest(text, want string) string {
	grams := make(map[string]bool)
	for i := 0; i+3 <= len(want); i++ {
		grams[want[i:i+3]] = true
	}
	best, most := "", 0
	for line := range strings.SplitSeq(text, "\n") {
		shared := make(map[string]bool)
		for i := 0; i+3 <= len(line); i++ {
			if g := line[i : i+3]; grams[g] {
				shared[g] = true
			}
		}
		if len(shared) > most {
			best, most = line, len(shared)
		}
	}
	if most == 0 {
		return excerpt(text)
	}
	return excerpt(best)
}

// excerpt quotes the start of text.
func excerpt(text string) string {
	const limit = 300
	if text == "" {
		return "(empty)"
	}
	if len(text) <= limit {
		return fmt.Sprintf("%q", text)
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:cut], len(text))
}
