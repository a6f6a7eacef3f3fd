package shell

import (
	"slices"
	"strings"
)

// gitOptions are the options of a subcommand of git that starts an editor for a text, unless it
// gets one. Others may start it in spite of that.
type gitOptions struct {
	// texts have the text as their value, and ends make it unnecessary.
	texts, ends []string
	// flags have no value, values have one.
	flags, values []string
	// textLetters, endLetters, flagLetters and valueLetters are the same as letters; the values of
	// attached ones are optional, and in the same word.
	textLetters, endLetters, flagLetters, valueLetters, attached string
}

var gitTexts = map[string]gitOptions{
	"commit": {
		texts: []string{"message", "file", "reuse-message"}, textLetters: "mFC",
		ends: []string{"no-edit", "dry-run"},
		flags: []string{
			"all", "allow-empty", "allow-empty-message", "amend", "quiet", "reset-author", "signoff",
			"no-signoff", "verbose", "verify", "no-verify", "include", "only", "gpg-sign", "no-gpg-sign",
			"no-post-rewrite", "untracked-files", "short", "porcelain", "long", "branch", "null", "status",
			"no-status", "pathspec-file-nul",
		},
		flagLetters: "aqsvnoiz", attached: "Su",
		values: []string{"author", "date", "cleanup", "trailer", "pathspec-from-file", "squash"},
	},
	"tag": {
		texts: []string{"message", "file"}, textLetters: "mF",
		flags: []string{
			"annotate", "sign", "no-sign", "force", "delete", "verify", "list", "ignore-case",
			"create-reflog", "column", "no-column", "color",
		},
		flagLetters: "asfdvli", attached: "n",
		values: []string{
			"local-user", "cleanup", "sort", "format", "contains", "no-contains", "merged", "no-merged",
			"points-at",
		},
		valueLetters: "u",
	},
	"notes": {
		texts: []string{"message", "file", "reuse-message"}, textLetters: "mFC",
		flags:       []string{"force", "allow-empty", "separator", "no-separator", "no-stripspace"},
		flagLetters: "f", values: []string{"ref"},
	},
	"revert": {
		ends: []string{"no-edit", "no-commit", "abort", "quit"}, endLetters: "n",
		flags: []string{"signoff", "gpg-sign", "no-gpg-sign"}, flagLetters: "s", attached: "S",
		values: []string{"mainline", "strategy", "strategy-option"}, valueLetters: "mX",
	},
}

// hasText reports whether arguments certainly have a text, or need none, and known whether all
// their options are known.
func (o gitOptions) hasText(args []string) (text, known bool) {
	for i := 0; i < len(args) && args[i] != "--" && args[i] != "--end-of-options"; i++ {
		word := args[i]
		if option, isLong := strings.CutPrefix(word, "--"); isLong {
			option, value, assigned := strings.Cut(option, "=")
			next := 1
			if assigned {
				next = 0
			}
			switch {
			case slices.Contains(o.texts, option):
				text, i = true, i+next
			case slices.Contains(o.ends, option):
				text = true
			case slices.Contains(o.flags, option):
			case slices.Contains(o.values, option):
				i += next
			case option == "fixup":
				if i += next; i < len(args) && !assigned {
					value = args[i]
				}
				if value == "" || strings.Contains(value, ":") { // it edits the text of the other commit
					return false, false
				}
				text = true
			default:
				return false, false
			}
			continue
		}
		if !strings.HasPrefix(word, "-") {
			continue
		}
	letters:
		for k, c := range word[1:] {
			last := k == len(word)-2
			switch {
			case strings.ContainsRune(o.textLetters, c):
				if text = true; last {
					i++
				}
				break letters
			case strings.ContainsRune(o.endLetters, c):
				text = true
			case strings.ContainsRune(o.flagLetters, c):
			case strings.ContainsRune(o.valueLetters, c):
				if last {
					i++
				}
				break letters
			case strings.ContainsRune(o.attached, c):
				break letters
			default:
				return false, false
			}
		}
	}
	return text, true
}

// gitAsks are letters of options of subcommands of git that start an editor, or ask questions that
// may, and behind them letters of options with a value.
var gitAsks = map[string][2]string{
	"add": {"ipe", ""}, "stage": {"ipe", ""}, "checkout": {"p", "bB"}, "reset": {"p", ""},
	"restore": {"p", "sU"}, "stash": {"p", "m"}, "rebase": {"e", "XsCS"}, "cherry-pick": {"e", "mSX"},
	"merge": {"e", "mFSXs"}, "pull": {"e", "XsSj"}, "am": {"i", "CpS"}, "replace": {"e", ""},
}

// gitEdits reports whether a subcommand of git, with its arguments, may start an editor. Without
// a terminal a merge starts none.
func gitEdits(sub string, args []string) bool {
	has := func(words ...string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(words, a) })
	}
	switch sub {
	case "commit", "revert":
		text, known := gitTexts[sub].hasText(args)
		return !text || !known
	case "tag":
		text, known := gitTexts[sub].hasText(args)
		annotated := slices.ContainsFunc(args, func(word string) bool {
			return word == "--annotate" || word == "--sign" || strings.HasPrefix(word, "--local-user") ||
				strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") &&
					strings.ContainsAny(word, "asu")
		})
		return !known || annotated && !text
	case "notes":
		text, known := gitTexts[sub].hasText(args)
		return has("edit") || has("add", "append") && (!text || !known)
	case "stash":
		if has("show") {
			return false
		}
	}
	asks, ok := gitAsks[sub]
	return ok && slices.ContainsFunc(args, func(word string) bool {
		if option, isLong := strings.CutPrefix(word, "--"); isLong {
			option, value, _ := strings.Cut(option, "=")
			return option != "" && (abbreviates(option, []string{"continue", "skip", "resolved"}) ||
				sub == "rebase" && strings.HasPrefix("autosquash", option) ||
				sub == "pull" && strings.HasPrefix("rebase", option) && strings.HasPrefix(value, "i"))
		}
		return sub == "pull" && strings.Contains(word, "ri") || hasLetter(word, asks[0], asks[1])
	})
}

// hasLetter reports whether a word has one of the letters of options, before a letter of an option
// with a value.
func hasLetter(word, letters, values string) bool {
	if !strings.HasPrefix(word, "-") {
		return false
	}
	word = word[1:]
	if i := strings.IndexAny(word, values); i >= 0 {
		word = word[:i]
	}
	return strings.ContainsAny(word, letters)
}
