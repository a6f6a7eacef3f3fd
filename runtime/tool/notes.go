package tool

import (
	"fmt"
	"strings"
	"time"
)

// The texts below are what the loop tells a model of its own accord.

// LoopNote tells a model that its last calls repeat a pattern.
func LoopNote(calls int) string {
	return fmt.Sprintf("Your last %d tool calls repeat the same pattern and bring nothing new. "+
		"Stop, think about what the results "+
		"tell you, and try something different. If you cannot go on, say so.", calls)
}

// VerifyNote tells a model that the check of its work failed. Output is what the check printed,
// already cut.
func VerifyNote(
	command string, exitCode int, timedOut bool, elapsed time.Duration, output string,
) string {
	how := fmt.Sprintf("exit code %d", exitCode)
	if timedOut {
		how = fmt.Sprintf("no end after %s", elapsed.Round(time.Second))
	}
	return fmt.Sprintf("The work is not done: the check `%s` failed (%s). Its "+
		"output:\n\n%s\n\nFind out why, mend it, and "+
		"finish again.", command, how, strings.TrimRight(output, "\n"))
}

// DuplicateNote is the result of a call whose ID another call of the same answer has.
func DuplicateNote(id string) string {
	return fmt.Sprintf("This call was not run: its ID %q was used by an earlier call of the same "+
		"answer. If you need it, "+
		"call the tool again.", id)
}

// NotRunNote is the result of a call that never began.
func NotRunNote(why string) string { return "This call was not run: " + why + "." }

// NotOfferedNote is the result of a call of a tool that exists but is not offered in this run.
func NotOfferedNote(name string, offered []string) string {
	if len(offered) == 0 {
		return fmt.Sprintf("The tool %q cannot be used here, nor can any other.", name)
	}
	return fmt.Sprintf("The tool %q cannot be used here. Tools that can: %s.", name,
		strings.Join(offered, ", "))
}

// HintsNote wraps facts about a run that go to a model with its input.
func HintsNote(hints []string) string {
	return "<hints>\n" + strings.Join(hints, "\n") + "\n</hints>"
}

// DocsCutNote marks where the project's instructions were cut.
func DocsCutNote(limit int) string {
	return fmt.Sprintf("[Project instructions were cut at %d KB.]", limit>>10)
}

// ReadOnlyNote tells a model that a run can change nothing.
func ReadOnlyNote() string {
	return "This run is read-only: files can be read and searched, but nothing can be written and " +
		"no command can be run. " +
		"If the task asks for a change, describe the change instead."
}
