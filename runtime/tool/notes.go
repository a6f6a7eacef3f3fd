package tool

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// The functions below return the texts that the loop itself sends to a model.

// LoopNote warns a model that its last calls repeat a pattern.
func LoopNote(calls int) string {
	return fmt.Sprintf("Your last %d tool calls repeat the same pattern and bring nothing new. "+
		"Stop, think about the results, and try something different. If you cannot continue, say so.",
		calls)
}

// VerifyNote reports a failed verification command to a model. Output is its truncated output.
func VerifyNote(
	command string, exitCode int, timedOut bool, elapsed time.Duration, output string,
) string {
	how := fmt.Sprintf("exit code %d", exitCode)
	if timedOut {
		how = fmt.Sprintf("timeout after %s", elapsed.Round(time.Second))
	}
	return fmt.Sprintf("The work is not done: the check `%s` failed (%s). Its output:\n\n%s\n\nFind "+
		"the cause, fix it, and finish again.", command, how, strings.TrimRight(output, "\n"))
}

// DuplicateNote is the result of a call whose ID an earlier call of the same answer has.
func DuplicateNote(id string) string {
	return fmt.Sprintf("This call was not run: its ID %q was used by an earlier call of the same "+
		"answer. If you need it, call the tool again.", id)
}

// NotRunNote is the result of a call that was not started.
func NotRunNote(why string) string { return "This call was not run: " + why + "." }

// NotOfferedNote is the result of a call of a tool that exists but is not offered in this run.
func NotOfferedNote(name string, offered []string) string {
	return fmt.Sprintf("The tool %q is not available in this run. Available tools: %s.", name,
		cmp.Or(strings.Join(offered, ", "), "none"))
}

// HintsNote wraps facts about a run that a model receives with its input.
func HintsNote(hints []string) string {
	return "<hints>\n" + strings.Join(hints, "\n") + "\n</hints>"
}

// DocsCutNote marks the end of truncated project instructions.
func DocsCutNote(limit int) string {
	return fmt.Sprintf("[Project instructions were cut at %d KB.]", limit>>10)
}

// ReadOnlyNote explains to a model that a run cannot change anything.
func ReadOnlyNote() string {
	return "This run is read-only: files can be read and searched, but nothing can be written and " +
		"no command can be run. If the task asks for a change, describe the change instead."
}
