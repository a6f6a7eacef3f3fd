// Package policy decides what an agent may do. It decides only; callers enforce the decisions.
//
// A [Policy] is a list of rules. A [Rule] has a permission, a pattern and an action: the first rule
// that matches decides, and if none does, the default of the policy. A permission is the name of a
// tool, a class of tools, a level of risk (safe, moderate, dangerous), or "*" for all. The pattern
// is for the subject of a call:
//
//	class    subject
//	read     the name of the file or directory: read_file, read_many_files, list_dir
//	write    the name of the file: write_file, edit_file, apply_patch, and writes of commands
//	search   the pattern: grep, glob
//	shell    the command
//	agent    the task: spawn_agent, send_input, wait, close_agent
//	human    nothing: ask_user, exit
//	repeat   the name of a tool that is called the third time in a row with the same arguments
//
// # Patterns
//
// For commands and other texts "*" matches any characters and "?" one. " *" at the end matches
// nothing, too, so that "git status *" matches "git status".
//
// A backslash before "*", "?" or a backslash makes it an ordinary character.
//
// For names of files "*" and "?" do not match a slash, "**" matches any characters, "**/" nothing
// or any parents, and "/**" at the end a directory with all below it. A relative pattern is for
// names in the working directory only, an absolute one, or one that starts with "~/", for all. "*"
// alone matches every name.
//
// # Commands
//
// The command of a shell is parsed, and each simple command in it is decided for itself, also those
// that programs such as timeout, sudo, xargs and find run: the strictest decision counts. A pattern
// is compared with the words, apart by one blank and in quotes where the shell needs them, and
// without the directory of the program if that is one of the system. Files that a command is known
// to write need rules of the class write; rules of the class read that deny or ask apply to its
// arguments. Builtins of the shell without an effect outside it need no rule.
//
// Parts that only the shell knows when it runs the command, such as the values of variables, match
// nothing but "*". What is not understood, such as a script that a command makes, needs a rule that
// allows all commands, else the decision is to ask.
package policy
