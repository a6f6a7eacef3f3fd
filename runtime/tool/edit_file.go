package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/tool/internal/v4a"
)

// maxEdited is the size in bytes of the largest file that is edited.
const maxEdited = 64 << 20

// EditFile returns the tool edit_file.
func EditFile() Tool {
	return builtin(Tool{
		ToolSpec: spec("edit_file", `
			"file_path": {"type": "string", "minLength": 1,
				"description": "The file, absolute or relative to the working directory."},
			"old_string": {"type": "string",
				"description": "The text to replace, exactly as the file has it, without line numbers."},
			"new_string": {"type": "string", "description": "The text that replaces it."},
			"replace_all": {"type": "boolean",
				"description": "Replace every occurrence. Default false: old_string must occur once."}`,
			"file_path", "old_string", "new_string"),
		NeedsEnv: true,
		Class:    policy.ClassWrite,
		Subjects: subjects(func(a editFileArgs) []string { return []string{a.Path} }),
		Limit:    Limit{Chars: 10_000, Keep: KeepTail},
	}, editFile)
}

type editFileArgs struct {
	Path string `json:"file_path"`
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	All  bool   `json:"replace_all"`
}

func editFile(ctx context.Context, call *Call, args editFileArgs) (Result, error) {
	if args.Old == "" {
		return Result{}, errorf(KindValidation, "old_string is empty; write a whole file with write_file")
	}
	if args.Old == args.New {
		return Result{}, errorf(KindValidation, "old_string and new_string are the same; nothing "+
			"would change")
	}
	data, err := env.ReadFile(ctx, call.Env, args.Path, maxEdited)
	if err != nil {
		return Result{}, err
	}
	// The model has seen the file without its secrets.
	e, err := edit(args.Path, call.Redactor.Text(string(data)), args.Old, args.New, args.All)
	if err != nil {
		return Result{}, err
	}
	if e.content, err = call.restore(e.content, string(data)); err != nil {
		return Result{}, err
	}
	written, err := call.Env.WriteFile(ctx, args.Path, strings.NewReader(e.content),
		env.WriteOptions{IfSHA256: digest(data)})
	if err != nil {
		return Result{}, err
	}
	s := plural(e.lines)
	return Result{
		Text: fmt.Sprintf("made %d replacement%s in %s, at line%s %s%s%s", len(e.lines), s,
			shown(args.Path), s, list(e.lines), inPlace(written), e.remark),
		Changes: []event.FileChange{{Path: changedName(call.Env, args.Path), Kind: event.FileModified}},
	}, nil
}

// edited is the content of a file after an edit.
type edited struct {
	content string
	// lines are the numbers of the lines where a replacement starts.
	lines []int
	// remark informs the model that the text did not match exactly.
	remark string
}

// edit replaces old in content where it matches exactly, or otherwise where lines match those of
// old loosely. A byte order mark is not part of the text.
func edit(name, content, old, replacement string, all bool) (edited, error) {
	const bom = "\uFEFF"
	body, hasBOM := strings.CutPrefix(content, bom)
	old, replacement = strings.TrimPrefix(old, bom), strings.TrimPrefix(replacement, bom)
	if old == "" {
		return edited{}, errorf(KindValidation, "old_string is only a byte order mark, which cannot be "+
			"edited")
	}
	exact, exactReplacement := withEnding(body, old, replacement)
	e := edited{lines: occurrences(body, exact, all)}
	switch {
	case len(e.lines) > 1 && !all:
		count := fmt.Sprint(len(e.lines))
		if len(e.lines) == mostCounted {
			count = "at least " + count
		}
		return edited{}, errorf(KindEditConflict, "old_string occurs %s times in %s, at lines %s; add "+
			"lines around it so that it occurs once, or set replace_all",
			count, shown(name), list(e.lines))
	case len(e.lines) > 0:
		e.content = strings.ReplaceAll(body, exact, exactReplacement)
	default:
		lines, level := v4a.Find(body, old)
		if len(lines) != 1 || all || strings.TrimSpace(old) == "" {
			return edited{}, notFound(name, body, old, lines, level)
		}
		content, ok := v4a.Replace(body, old, replacement, lines[0])
		if !ok {
			return edited{}, unclear(name, body, old, lines[0], level)
		}
		e = edited{content: content, lines: lines, remark: loosely(level)}
	}
	if e.content == body {
		return edited{}, errorf(KindValidation, "new_string would not change %s", shown(name))
	}
	if hasBOM {
		e.content = bom + e.content
	}
	return e, nil
}

// loosely informs the model that its text did not match exactly.
func loosely(level v4a.Level) string {
	how := level.String()
	if level == v4a.Exact {
		how = "with other line endings"
	}
	return fmt.Sprintf("\n[old_string matched only %s; whole lines were replaced and indented as in "+
		"the file, and unchanged lines were kept as they are]", how)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withEnding returns old and replacement with the line endings of content. A model sees lines
// without their endings, so it writes "\n" also for a file whose lines end with "\r\n".
func withEnding(content, old, replacement string) (string, string) {
	crlf := strings.Count(content, "\r\n")
	if crlf <= strings.Count(content, "\n")-crlf {
		return old, replacement
	}
	if strings.Contains(old, "\n") {
		if !strings.Contains(content, toCRLF(old)) {
			return old, replacement // this part of the file may have other endings
		}
		old = toCRLF(old)
	}
	return old, toCRLF(replacement)
}

func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// mostCounted bounds the occurrences that are counted when only one is allowed. Finding each may
// take time proportional to the length of old.
const mostCounted = 100

// occurrences returns the lines where old starts. If all are to be replaced, they do not overlap;
// otherwise each one counts, up to mostCounted, since the model may mean any of them.
func occurrences(content, old string, all bool) []int {
	step := 1
	if all {
		step = len(old)
	}
	var lines []int
	line, from := 1, 0
	for at := 0; at <= len(content) && (all || len(lines) < mostCounted); at += step {
		i := strings.Index(content[at:], old)
		if i < 0 {
			break
		}
		at += i
		line += strings.Count(content[from:at], "\n")
		from = at
		lines = append(lines, line)
	}
	return lines
}

func plural(numbers []int) string {
	if len(numbers) > 1 {
		return "s"
	}
	return ""
}

// list formats at most ten numbers for a sentence.
func list(numbers []int) string {
	const most = 10
	var texts []string
	for _, n := range numbers[:min(most, len(numbers))] {
		texts = append(texts, strconv.Itoa(n))
	}
	text := strings.Join(texts, ", ")
	if more := len(numbers) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// notFound reports the part of content that is most similar to old, which matches loosely at lines
// or not at all.
func notFound(name, content, old string, lines []int, level v4a.Level) *Error {
	if len(lines) == 0 || strings.TrimSpace(old) == "" {
		for line := range strings.Lines(old) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			if lines, _ = v4a.Find(content, line); len(lines) > 0 {
				return errorf(KindEditConflict, "old_string is not in %s. Its first line is at line%s %s, but "+
					"the lines after it differ; read them again", shown(name), plural(lines), list(lines))
			}
			break
		}
		return errorf(KindEditConflict, "old_string is not in %s, and no line is similar to its first "+
			"line; read the file again", shown(name))
	}
	if len(lines) > 1 {
		return errorf(KindEditConflict, "old_string does not match %s exactly, and %s it matches "+
			"several times, at lines %s. Nothing was changed; give old_string exactly as in the file, "+
			"with more lines around it. The file has at line %d:\n%s",
			shown(name), level, list(lines), lines[0], excerptOf(content, old, lines[0]))
	}
	return errorf(KindEditConflict, "old_string does not match %s exactly, but %s it matches, at "+
		"line %s; replace_all needs exact text. The file has there:\n%s\n"+
		"Give old_string exactly like this",
		shown(name), level, list(lines), excerptOf(content, old, lines[0]))
}

// unclear reports that old matches at the line first, but that the indentation of new lines is
// ambiguous.
func unclear(name, content, old string, first int, level v4a.Level) *Error {
	return errorf(KindEditConflict, "old_string does not match %s exactly. It matches %s, at line "+
		"%d, but the indentation of new_string there is ambiguous. The file has there:\n%s\n"+
		"Give old_string exactly like this, and new_string with the same indentation",
		shown(name), level, first, excerptOf(content, old, first))
}

// excerptOf returns the lines of content, from first on, that old matches, cut to a readable size.
func excerptOf(content, old string, first int) string {
	const mostLines, mostChars = 20, 300
	count := strings.Count(strings.TrimSuffix(old, "\n"), "\n") + 1
	var lines []string
	number := 0
	for line := range strings.Lines(content) {
		if number++; number >= first+min(count, mostLines) {
			break
		}
		if number >= first {
			lines = append(lines, cutRunes(strings.TrimRight(line, "\r\n"), mostChars))
		}
	}
	return strings.Join(lines, "\n")
}
