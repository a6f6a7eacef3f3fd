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
		return Result{}, errorf(KindValidation, "old_string and new_string are the same; there is "+
			"nothing to change")
	}
	data, err := env.ReadFile(ctx, call.Env, args.Path, maxEdited)
	if err != nil {
		return Result{}, err
	}
	e, err := edit(args.Path, string(data), args.Old, args.New, args.All)
	if err != nil {
		return Result{}, err
	}
	written, err := call.Env.WriteFile(ctx, args.Path, strings.NewReader(e.content),
		env.WriteOptions{IfSHA256: digest(data)})
	if err != nil {
		return Result{}, err
	}
	s := plural(e.places)
	return Result{
		Text: fmt.Sprintf("made %d replacement%s in %s, at line%s %s%s%s", len(e.places), s,
			shown(args.Path), s, list(e.places), inPlace(written), e.note),
		Changes: []event.FileChange{{Path: changedName(call.Env, args.Path), Kind: event.FileModified}},
	}, nil
}

// edited is the content of a file after an edit.
type edited struct {
	content string
	// places are the lines where something was replaced.
	places []int
	// note tells if the text was found only loosely.
	note string
}

// edit replaces old in content: where it stands exactly, or else where lines stand that are like
// those of old. A byte order mark is no part of the text.
func edit(name, content, old, replacement string, all bool) (edited, error) {
	const bom = "\uFEFF"
	body, hasBOM := strings.CutPrefix(content, bom)
	old, replacement = strings.TrimPrefix(old, bom), strings.TrimPrefix(replacement, bom)
	if old == "" {
		return edited{}, errorf(KindValidation, "old_string is only a byte order mark, which is kept "+
			"as it is")
	}
	exact, exactReplacement := withEnding(body, old, replacement)
	e := edited{places: occurrences(body, exact, all)}
	switch {
	case len(e.places) > 1 && !all:
		count := fmt.Sprint(len(e.places))
		if len(e.places) == mostCounted {
			count = "at least " + count
		}
		return edited{}, errorf(KindEditConflict, "old_string occurs %s times in %s, at lines %s; add "+
			"lines around it so that it occurs once, or set replace_all",
			count, shown(name), list(e.places))
	case len(e.places) > 0:
		e.content = strings.ReplaceAll(body, exact, exactReplacement)
	default:
		places, level := v4a.Find(body, old)
		if len(places) != 1 || all || strings.TrimSpace(old) == "" {
			return edited{}, notFound(name, body, old, places, level)
		}
		content, ok := v4a.Replace(body, old, replacement, places[0])
		if !ok {
			return edited{}, unclear(name, body, old, places[0], level)
		}
		e = edited{content: content, places: places, note: loosely(level)}
	}
	if e.content == body {
		return edited{}, errorf(KindValidation, "%s has new_string there already; nothing was changed",
			shown(name))
	}
	if hasBOM {
		e.content = bom + e.content
	}
	return e, nil
}

// loosely tells a model that its text was not exactly what the file has.
func loosely(level v4a.Level) string {
	how := level.String()
	if level == v4a.Exact {
		how = "with other line endings"
	}
	return fmt.Sprintf("\n[old_string was found only %s; whole lines were replaced, indented as "+
		"the file is, and lines that stay were left as they are]", how)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withEnding returns old and replacement with the line endings of content. A model sees lines
// without their endings, and so writes "\n" also for a file whose lines end with "\r\n".
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

// mostCounted is how many places are looked for when there must be only one. Each may cost as much
// as old is long.
const mostCounted = 100

// occurrences returns the lines where old begins. If all are to be replaced, they do not overlap;
// otherwise each is counted, up to mostCounted, since any of them may be meant.
func occurrences(content, old string, all bool) []int {
	step := 1
	if all {
		step = len(old)
	}
	var places []int
	line, from := 1, 0
	for at := 0; at <= len(content) && (all || len(places) < mostCounted); at += step {
		i := strings.Index(content[at:], old)
		if i < 0 {
			break
		}
		at += i
		line += strings.Count(content[from:at], "\n")
		from = at
		places = append(places, line)
	}
	return places
}

func plural(numbers []int) string {
	if len(numbers) > 1 {
		return "s"
	}
	return ""
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

// notFound says what in content is most like old, which stands at places only loosely, or nowhere.
func notFound(name, content, old string, places []int, level v4a.Level) *Error {
	if len(places) == 0 || strings.TrimSpace(old) == "" {
		for line := range strings.Lines(old) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			if places, _ = v4a.Find(content, line); len(places) > 0 {
				return errorf(KindEditConflict, "old_string is not in %s. Its first line is there at line%s "+
					"%s, but the lines after it differ; read them again", shown(name), plural(places),
					list(places))
			}
			break
		}
		return errorf(KindEditConflict, "old_string is not in %s, and nothing like its first line is; "+
			"read the file again", shown(name))
	}
	if len(places) > 1 {
		return errorf(KindEditConflict, "old_string is not in %s exactly, and %s it is there several "+
			"times, at lines %s. Nothing was changed; give old_string exactly as the file has it, with "+
			"more lines around it. The file has at line %d:\n%s",
			shown(name), level, list(places), places[0], excerptOf(content, old, places[0]))
	}
	return errorf(KindEditConflict, "old_string is not in %s exactly, but %s it is, at line %s; "+
		"replace_all takes only exact text. The file has there:\n%s\nGive old_string exactly like this",
		shown(name), level, list(places), excerptOf(content, old, places[0]))
}

// unclear says that old stands at the line place, but that new lines cannot be indented as the file
// is.
func unclear(name, content, old string, place int, level v4a.Level) *Error {
	return errorf(KindEditConflict, "old_string is not in %s exactly. %s it is, at line %d, but "+
		"how new_string is to be indented there does not follow from it. The file has "+
		"there:\n%s\nGive old_string exactly like this, and new_string with the same indentation",
		shown(name), strings.ToUpper(level.String()[:1])+level.String()[1:], place, excerptOf(content,
			old, place))
}

// excerptOf returns the lines of content from place on that old stands for.
func excerptOf(content, old string, place int) string {
	return excerpt(content, place, strings.Count(strings.TrimSuffix(old, "\n"), "\n")+1)
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
