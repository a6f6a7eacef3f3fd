package failure

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Kinds of failures besides those of tools.
const (
	KindCheck = "check_failed"
	KindTask  = "task_failed"
)

// Bounds of the texts of a signal, in bytes.
const (
	maxMessage  = 2000
	maxOutput   = 1000
	maxLearning = 200 // in characters
)

// OfCall returns the signal of the call c, which failed with e at a time. Text is the result of the
// call: the output, and then the message of e. None of them has secrets.
func OfCall(c llm.ToolCall, e *tool.Error, text string, at time.Time) event.Failure {
	f := event.Failure{
		Source: event.FailureTool, Kind: string(e.Kind), Message: shorten.Middle(e.Message, maxMessage),
		Tool: c.Name, CallID: c.ID, Arguments: shorten.Middle(c.Canonical(), maxMessage), Time: at,
	}
	switch e.Kind {
	case tool.KindValidation, tool.KindUnknownTool:
		f.Source = event.FailureValidation
	case tool.KindShellTimeout:
		f.Source = event.FailureTimeout
	}
	if e.Kind == tool.KindShellExit || e.Kind == tool.KindShellTimeout {
		f.ExitCode = e.ExitCode
		f.Output = tail(strings.TrimSuffix(text, e.Message), maxOutput)
	}
	f.Class, f.Strategy = judge(e, f.Output)
	f.Learning = learn(f, e)
	return f
}

// OfCheck returns the signal of a check that did not pass: the message for the model, the exit code
// and what the check printed.
func OfCheck(message string, exitCode int, output string, at time.Time) event.Failure {
	return event.Failure{
		Source: event.FailureVerify, Kind: KindCheck, Class: event.ClassRecoverable,
		Strategy: event.StrategyCorrect, Message: shorten.Middle(message, maxMessage),
		ExitCode: &exitCode, Output: tail(output, maxOutput),
		Learning: firstLine(tellingLine(output)), Time: at,
	}
}

// OfTask returns the signal of a model's report that it cannot do the task.
func OfTask(reason string, at time.Time) event.Failure {
	return event.Failure{
		Source: event.FailureModel, Kind: KindTask, Class: event.ClassRecoverable,
		Strategy: event.StrategyAlternative, Message: shorten.Middle(reason, maxMessage),
		Learning: firstLine(reason), Time: at,
	}
}

// locked matches what programs print when another process holds a lock that they need: git, apt and
// dpkg, SQLite, cargo, flock, and the errors EAGAIN, EBUSY and ETXTBSY of the system.
var locked = lazyregexp.New(`(?i)\.lock': File exists|could not get lock|is locked by another|` +
	`database is locked|waiting for file lock|resource temporarily unavailable|` +
	`device or resource busy|text file busy|another .{1,30} process (is|seems to be) running`)

// judge returns the class of an error and the next step. Output is what a command printed.
func judge(e *tool.Error, output string) (event.FailureClass, event.Strategy) {
	switch {
	case errors.Is(e.Err, env.ErrUnknownOutcome):
		return event.ClassRecoverable, event.StrategyCorrect
	case errors.Is(e.Err, env.ErrGone), errors.Is(e.Err, fs.ErrClosed):
		return event.ClassPermanent, event.StrategyTerminate
	case errors.Is(e.Err, env.ErrBusy):
		return event.ClassRetryable, event.StrategyWait
	case errors.Is(e.Err, env.ErrNoSpace):
		return event.ClassRecoverable, event.StrategyAlternative
	}
	switch e.Kind {
	case tool.KindPermission:
		switch {
		case errors.Is(e.Err, env.ErrReadOnly), errors.Is(e.Err, env.ErrReadOnlyFile):
			return event.ClassPermission, event.StrategyAskUser
		case errors.Is(e.Err, env.ErrOutside), errors.Is(e.Err, fs.ErrPermission):
			return event.ClassPermission, event.StrategyAlternative
		}
		return event.ClassPermission, event.StrategyAskUser
	case tool.KindCanceled:
		return event.ClassRetryable, event.StrategyRetry
	case tool.KindEnvironment:
		return event.ClassRetryable, event.StrategyRetry
	case tool.KindUnknownTool, tool.KindNotFound, tool.KindPanic, tool.KindShellTimeout:
		return event.ClassRecoverable, event.StrategyAlternative
	case tool.KindShellExit:
		switch {
		case locked().MatchString(output):
			return event.ClassRetryable, event.StrategyWait
		case e.ExitCode != nil && *e.ExitCode == 126:
			return event.ClassPermission, event.StrategyAlternative
		case e.ExitCode != nil && *e.ExitCode == 127:
			return event.ClassRecoverable, event.StrategyAlternative
		}
	}
	return event.ClassRecoverable, event.StrategyCorrect
}

// Learnings that say nothing about their call.
const (
	learnLost = "The connection was lost; look at what was done before you repeat the call."
	learnSlow = "This command takes longer than its timeout; give it a larger timeout_ms, or less " +
		"to do."
	learnBusy    = "Another process is in the way; wait until it has ended, and repeat the call."
	learnMode    = "This file cannot be executed; look at its mode and its first line."
	learnOutside = "This is not permitted here; use a path below the working directory."
	learnUser    = "This is not permitted; only the user can allow it."
)

// general has them all.
var general = [...]string{learnLost, learnSlow, learnBusy, learnMode, learnOutside, learnUser}

// learn returns what to do or to know next time: by a rule for a timeout, a missing permission and
// something that was not found, else the message.
func learn(f event.Failure, e *tool.Error) string {
	switch {
	case errors.Is(e.Err, env.ErrUnknownOutcome):
		return learnLost
	case e.Kind == tool.KindShellTimeout:
		return learnSlow
	case e.Kind == tool.KindUnknownTool:
		return "There is no tool " + f.Tool + "; use one of those that are offered."
	case f.Strategy == event.StrategyWait:
		return learnBusy
	case f.Class == event.ClassPermission && e.Kind == tool.KindShellExit:
		return learnMode
	case f.Class == event.ClassPermission && f.Strategy == event.StrategyAlternative:
		return learnOutside
	case f.Class == event.ClassPermission:
		return learnUser
	case e.Kind == tool.KindNotFound:
		return firstLine(e.Message) + "; look for it before you use it."
	case e.Kind == tool.KindShellExit:
		if e.ExitCode != nil {
			if text := missing(f.Output, *e.ExitCode); text != "" {
				return shorten.Cut(text, maxLearning)
			}
		}
		if line := firstLine(tellingLine(f.Output)); line != "" {
			return line
		}
		return firstLine(strings.Trim(e.Message, "[]\n"))
	}
	return firstLine(e.Message)
}

// nextSteps are the strategies, in the words for a model.
var nextSteps = map[event.Strategy]string{
	event.StrategyRetry:       "repeat the call",
	event.StrategyWait:        "wait until the other process has ended, then repeat the call",
	event.StrategyCorrect:     "find the cause and correct it before you repeat the call",
	event.StrategyAlternative: "use another tool, command or path",
	event.StrategyAskUser:     "do what is allowed, and tell the user what is missing",
	event.StrategyTerminate:   "stop, and report what is done",
}

// Advice tells a model the class and the strategy of a failure, in one line. It names another tool
// where one of those that are offered helps.
func Advice(f event.Failure, offered []string) string {
	next := nextSteps[f.Strategy]
	if t := otherTool(f, offered); t != "" {
		next += ", such as the tool " + t
	}
	return "[This failure is " + string(f.Class) + ". Next: " + next + ".]"
}

// otherTool returns a tool to use instead of that which failed, or "".
func otherTool(f event.Failure, offered []string) string {
	var names []string
	switch tool.ErrorKind(f.Kind) {
	case tool.KindNotFound:
		names = []string{"glob", "list_dir"}
	case tool.KindUnknownTool:
		names = sameTools[strings.ToLower(f.Tool)]
	}
	for _, name := range names {
		if name != f.Tool && slices.Contains(offered, name) {
			return name
		}
	}
	return ""
}

// sameTools has the tools that do what a tool of another program or provider does.
var sameTools = map[string][]string{
	"apply_patch": {"edit_file"}, "edit": {"edit_file", "apply_patch"},
	"edit_file": {"apply_patch"}, "multiedit": {"edit_file", "apply_patch"},
	"replace": {"edit_file", "apply_patch"}, "str_replace": {"edit_file", "apply_patch"},
	"str_replace_based_edit_tool": {"edit_file", "apply_patch"},
	"create":                      {"write_file"}, "write": {"write_file"},
	"cat": {"read_file"}, "read": {"read_file"}, "view": {"read_file"},
	"read_many_files": {"read_file"}, "find": {"glob"}, "list_dir": {"glob"},
	"list_directory": {"list_dir", "glob"}, "ls": {"list_dir", "glob"},
	"rg": {"grep"}, "ripgrep": {"grep"}, "search": {"grep"}, "search_file_content": {"grep"},
	"bash": {"shell"}, "exec": {"shell"}, "exec_command": {"shell"}, "local_shell": {"shell"},
	"run_shell_command": {"shell"}, "sh": {"shell"}, "task": {"spawn_agent"},
	"todowrite": {"plan_write"}, "update_plan": {"plan_write"},
}

// numbers matches what differs between two failures of the same cause: numbers, addresses, times
// and names of temporary files.
var numbers = lazyregexp.New(`0x[0-9a-fA-F]+|\b[0-9a-f]{7,}\b|[0-9]+([.:][0-9]+)*(ns|µs|us|ms|s)?`)

// spaces matches white space and quotation marks, of which tools use different ones.
var spaces = lazyregexp.New("[\\s\"'`‘’“”]+")

// Normalize returns a text that two failures of the same cause have in common: their messages
// without numbers, in lower case, and with one space instead of white space and quotation marks.
func Normalize(message string) string {
	message = numbers().ReplaceAllString(strings.ToLower(message), "#")
	return strings.TrimSpace(spaces().ReplaceAllString(message, " "))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return shorten.Cut(shorten.Line(line), maxLearning)
}

// tellingLine returns the line of an output that tells most about a failure: the last one with a
// place in a file or with a word for a failure, or else the last one with a letter. A line that
// only says that a program failed does not count.
func tellingLine(output string) string {
	last := ""
	for _, line := range slices.Backward(strings.Split(output, "\n")) {
		switch {
		case !letter().MatchString(line) || verdict().MatchString(line):
		case telling().MatchString(line):
			return line
		case last == "":
			last = line
		}
	}
	if last == "" {
		return strings.TrimSpace(output)
	}
	return last
}

var (
	letter = lazyregexp.New(`\pL`)
	// verdict matches the last lines of go, make and pytest.
	verdict = lazyregexp.New(
		`^\s*(--- )?FAIL(ED)?\b|^exit status \d+$|^make(\[\d+\])?: \*\*\*|^=+ .* =+$`,
	)
	telling = lazyregexp.New(
		`[\w/-]\.\w+:\d+|(?i)\b(error|fatal|panic|undefined|unknown|invalid|denied|` +
			`missing|exception)\b|no such|not found|cannot|can't|want `,
	)
)

// tail returns about the last n bytes of a text.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}
