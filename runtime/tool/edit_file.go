package tool

import (
	"context"
	"crypto/sha256"
	_ "embed" // For the description.
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool/internal/v4a"
)

//go:embed edit_file.md
var editFileText string

// maxEdited is the size in bytes of the largest file that is edited.
const maxEdited = 64 << 20

// EditFile is the tool edit_file.
func EditFile() Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: "edit_file", Description: editFileText, Schema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"file_path": {"type": "string", "minLength": 1, "description": "The file, absolute or relative to the working directory."},
				"old_string": {"type": "string", "description": "The text to replace, exactly as the file has it, without line numbers."},
				"new_string": {"type": "string", "description": "The text to put in its place."},
				"replace_all": {"type": "boolean", "description": "Replace every occurrence. Default false: old_string must occur once."}
			},
			"required": ["file_path", "old_string", "new_string"],
			"additionalProperties": false
		}`)},
		NeedsEnv: true,
		Limit:    Limit{Chars: 10_000, Keep: KeepTail},
		Run:      editFile,
	}
}

func editFile(ctx context.Context, call *Call) (Result, error) {
	var args struct {
		Path string `json:"file_path"`
		Old  string `json:"old_string"`
		New  string `json:"new_string"`
		All  bool   `json:"replace_all"`
	}
	if err := unmarshal(call, &args); err != nil {
		return Result{}, err
	}
	if args.Old == "" {
		return Result{}, errorf(KindValidation, "old_string is empty; write a whole file with write_file")
	}
	if args.Old == args.New {
		return Result{}, errorf(KindValidation, "old_string and new_string are the same; there is nothing to change")
	}
	data, err := env.ReadFile(ctx, call.Env, args.Path, maxEdited)
	if err != nil {
		return Result{}, err
	}
	content := string(data)
	old, replacement := withEnding(content, args.Old, args.New)
	places := occurrences(content, old)
	switch {
	case len(places) == 0:
		return Result{}, notFound(args.Path, content, args.Old)
	case len(places) > 1 && !args.All:
		return Result{}, errorf(KindEditConflict, "old_string occurs %d times in %s, at lines %s; add lines around it so that it occurs once, or set replace_all",
			len(places), shown(args.Path), list(places))
	}
	content = strings.ReplaceAll(content, old, replacement)
	written, err := call.Env.WriteFile(ctx, args.Path, strings.NewReader(content), env.WriteOptions{IfSHA256: digest(data)})
	if err != nil {
		return Result{}, err
	}
	plural := ""
	if len(places) > 1 {
		plural = "s"
	}
	return Result{
		Text:    fmt.Sprintf("made %d replacement%s in %s, at line%s %s%s", len(places), plural, shown(args.Path), plural, list(places), inPlace(written)),
		Changes: []event.FileChange{{Path: changedName(call.Env, args.Path), Kind: event.FileModified}},
	}, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withEnding returns old and replacement with the line endings of content. A model sees lines without their endings,
// and so writes "\n" also for a file whose lines end with "\r\n".
func withEnding(content, old, replacement string) (string, string) {
	crlf := strings.Count(content, "\r\n")
	if crlf <= strings.Count(content, "\n")-crlf {
		return old, replacement
	}
	if strings.Contains(old, "\n") {
		if !strings.Contains(content, toCRLF(old)) {
			return old, replacement // This part of the file may be an exception.
		}
		old = toCRLF(old)
	}
	return old, toCRLF(replacement)
}

func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// occurrences returns the lines where old begins.
func occurrences(content, old string) []int {
	var places []int
	line, at := 1, 0
	for {
		i := strings.Index(content[at:], old)
		if i < 0 {
			return places
		}
		line += strings.Count(content[at:at+i], "\n")
		places = append(places, line)
		line += strings.Count(old, "\n")
		at += i + len(old)
	}
}

// list writes numbers for a sentence, at most ten.
func list(numbers []int) string {
	const most = 10
	var b strings.Builder
	for i, n := range numbers {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(numbers)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// notFound says what is most like old in content.
func notFound(name, content, old string) *Error {
	places, level := v4a.Find(content, old)
	if len(places) == 0 {
		for line := range strings.Lines(old) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			if places, _ = v4a.Find(content, line); len(places) > 0 {
				return errorf(KindEditConflict, "old_string is not in %s. Its first line is there at line %s, but the lines after it differ; read them again", shown(name), list(places))
			}
			break
		}
		return errorf(KindEditConflict, "old_string is not in %s, and nothing like its first line is; read the file again", shown(name))
	}
	return errorf(KindEditConflict, "old_string is not in %s exactly, but %s it is, at line %s. The file has there:\n%s\nGive old_string exactly like this",
		shown(name), level, list(places), excerpt(content, places[0], strings.Count(strings.TrimSuffix(old, "\n"), "\n")+1))
}

// excerpt returns count lines of content from the line first on, cut to a readable size.
func excerpt(content string, first, count int) string {
	const mostLines, mostChars = 20, 300
	var b strings.Builder
	number := 0
	for line := range strings.Lines(content) {
		if number++; number < first {
			continue
		}
		if number == first+min(count, mostLines) {
			break
		}
		line = strings.TrimRight(line, "\r\n")
		fmt.Fprintf(&b, "%s\n", cutRunes(line, mostChars))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
