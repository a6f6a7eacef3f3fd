//go:build unix

package search_test

import (
	"github.com/sandboxagent/sandboxagent/env/search"
)

// parityPatterns are compared with ripgrep without options.
var parityPatterns = []string{
	// Texts.
	"func", "ErrNotExist", "zzqqyy", "a", "return nil", "\t", `"`, `\\`, "//", "日本語", "😀",
	"Größe", "�", "\r", "\v", "\f",
	// Nothing and empty matches.
	"", "^", "$", "^$", "x*", "^ *$", `\A\z`,
	// Parts before, within and after texts.
	`func \w+`, `\w+Error\(`, `Err[A-Z]\w*`, `if err != nil \{ .* \}`, `"[^"]*"`, `\([^()]*\)`,
	`(?:foo|bar)_?(?:Bar|bar)`, `ma(?:in|p)`, `(?:ab)+c`, `a{3,5}b`, `a{20,}`, `.*nil.*`, `^.+$`,
	`^.$`, `.{200}`,
	// Alternatives.
	"ErrNotExist|ErrPermission|ErrClosed", "TODO|FIXME", "error|err|e", "日本|русский|école",
	"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen",
	"^func|nil$", "^(?:a|b)$",
	// Anchors and words.
	"^func", "nil$", `^\s+return`, `\s+$`, `^\S`, `\bnil\b`, `\Bil\b`, `\bf`, `e\b`, `\B_\B`,
	`\Afunc`, `end\z`, `^^a`, `a$$`, `a^`, `$a`, `^a|b$`, `(?:^|\s)err(?:$|\s)`, `\w\b\W`,
	// Cases.
	"(?i)func", "(?i)k", "(?i)s", "(?i)kelvin", "(?i)größe", "(?i)STRASSE", "(?i)ωmega", "(?i)ı",
	"(?i)[a-c]bc", "(?i)todo|fixme", "(?i:f)unc", "f(?i)UNC", "(?i)k.*s", "(?i)[^a-z ]k",
	"(?i)^func.*nil",
	// Classes.
	"[0-9]{4}-[0-9]{2}-[0-9]{2}", `0[xX][0-9a-fA-F]+`, `[^\x00-\x7f]`, "[a-z][A-Z]",
	`[\w.+-]+@[\w-]+\.[\w.]+`, `[[:alpha:]]+`, `[[:punct:]]{3}`, `[^[:ascii:]]`, `[а-я]+`,
	`[日-本]`, `\pL+`, `\p{Lu}\p{Ll}`, `\p{Greek}`, `\PL{3}`, `[^\pL\d\s]`, `[\d\s]+`, `\S+\s\S+`,
	`\W{4}`, `[\]]`, `[a\-z]`, `[-a]`, `[*+?]`, `[😀-😎]`, `\x41`, `\x{1F600}`, `[\x00-\x1f]`,
	`[ſK]`,
	`[^\r]\r[^\r]`,
	// Quoted characters, groups and flags.
	`a\.b`, `a\(b\)`, `a\\b`, `a\$b`, `(?P<name>func) (?P<rest>\w+)`, `a.*?b`, `(?U)a+b`,
	`(?:a*)*b`, `(?:a|aa)+b`, `(?:.*){3}nil`, `https?://[^\s"]+`, `(?:\d{1,3}\.){3}\d{1,3}`,
}

// parityOptions are compared with ripgrep. They have no counts and limits of matches of several
// lines, which ripgrep counts as matches and Grep as lines, and no limits with context lines, among
// which ripgrep shows more matches.
var parityOptions = []search.GrepOptions{
	{Pattern: "a.b", Literal: true},
	{Pattern: "a*b a(b)", Literal: true},
	{Pattern: `a\b`, Literal: true},
	{Pattern: "[", Literal: true},
	{Pattern: "^", Literal: true},
	{Pattern: "(?i)", Literal: true},
	{Pattern: "größe", Literal: true, IgnoreCase: true},
	{Pattern: "a|b", Literal: true, IgnoreCase: true},
	{Pattern: "\u017f", Literal: true, IgnoreCase: true},
	{Pattern: "-e", Literal: true},

	{Pattern: "errnotexist|ERRPERMISSION", IgnoreCase: true},
	{Pattern: `\bMAIN\b`, IgnoreCase: true},
	{Pattern: "[a-f]{4}", IgnoreCase: true},
	{Pattern: "K", IgnoreCase: true},
	{Pattern: "(?-i)nil", IgnoreCase: true},
	{Pattern: "[^k]s", IgnoreCase: true},
	{Pattern: "ОНЛАЙН|РУССКИЙ", IgnoreCase: true},

	{Pattern: `nil \}\nFUNC`, Multiline: true},
	{Pattern: `func.*?\{\n`, Multiline: true},
	{Pattern: `^\n+`, Multiline: true},
	{Pattern: `# comment.*?comment \*/`, Multiline: true},
	{Pattern: `\Afunc`, Multiline: true},
	{Pattern: `end\n\z`, Multiline: true},
	{Pattern: "func main", Multiline: true, Literal: true},
	{Pattern: `the end$`, Multiline: true},
	{Pattern: `}\s*$\n^func`, Multiline: true},
	{Pattern: "NIL \\}\nfunc", Multiline: true, IgnoreCase: true},
	{Pattern: `aaa\w*\nabc`, Multiline: true, Before: 1, After: 2},
	{Pattern: `^package \w+\n`, Multiline: true, Mode: search.GrepFiles},

	{Pattern: "return nil", Before: 1},
	{Pattern: "nil", Before: 2, After: 2},
	{Pattern: "^$", Before: 3, After: 1},
	{Pattern: "zzqqyy", Before: 5, After: 5},
	{Pattern: "end$", After: 50},
	{Pattern: "FUNC", Before: 100},
	{Pattern: "lorem", Before: 1, After: 1},

	{Pattern: "nil", Glob: "*.go"},
	{Pattern: "nil", Glob: "*.{go,py}"},
	{Pattern: "nil", Glob: "sub/**"},
	{Pattern: "nil", Glob: "**/*.go"},
	{Pattern: "nil", Glob: "[a-m]*.go"},
	{Pattern: "nil", Glob: "**/deeper/*"},
	{Pattern: "nil", Glob: `star\*`},
	{Pattern: "nil", Glob: "*.go", Exclude: "*_test.go"},
	{Pattern: "nil", Exclude: "sub/**"},
	{Pattern: "nil", Exclude: "*.{go,log,txt}"},
	{Pattern: "nil", Glob: ".*"},
	{Pattern: "nil", Types: []string{"go"}},
	{Pattern: "nil", Types: []string{"py", "c"}},
	{Pattern: "end", Types: []string{"make", "json", "yaml"}},
	{Pattern: "nil", Types: []string{"go"}, Exclude: "*_test.go"},
	{Pattern: "e", Types: []string{"md"}, Glob: "R*"},
	{Pattern: "the", Types: []string{"txt", "html", "css", "sh"}},

	{Pattern: "nil", Mode: search.GrepFiles},
	{Pattern: "zzqqyy", Mode: search.GrepFiles},
	{Pattern: "", Mode: search.GrepFiles},
	{Pattern: "nil", Mode: search.GrepCounts},
	{Pattern: "^$", Mode: search.GrepCounts},
	{Pattern: `\bthe\b`, Mode: search.GrepCounts, IgnoreCase: true},

	{Pattern: "nil", MaxFileMatches: 1},
	{Pattern: "e", MaxFileMatches: 3},
	{Pattern: "nil", MaxFileMatches: 2, Mode: search.GrepCounts},
	{Pattern: "nil", MaxFileMatches: 1, Mode: search.GrepFiles},

	{Pattern: "nil", NoIgnore: true},
	{Pattern: "nil", NoIgnore: true, Glob: "*.log"},
	{Pattern: "func", NoIgnore: true, Types: []string{"go"}},
	{Pattern: "e", NoIgnore: true, Mode: search.GrepCounts, Exclude: "*.go"},
}

// parityDirs are searches below directories of the nasty tree.
var parityDirs = []search.GrepOptions{
	{Pattern: "nil", Path: "sub"},
	{Pattern: "nil", Path: "sub/deeper/"},
	{Pattern: "nil", Path: "tmp", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "all", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "tmp/in", Glob: "*.tmp"},
	{Pattern: "nil", Path: "nested"},
	{Pattern: "nil", Path: "build", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "link to sub", Glob: "*.go"},
	{Pattern: "nil", Path: "all/in", Exclude: "*.c"},
	{Pattern: "nil", Path: ".hidden.d"},
	{Pattern: "nil", Path: "no files"},
}

func parityCases() (all []search.GrepOptions) {
	for _, pattern := range parityPatterns {
		all = append(all, search.GrepOptions{Pattern: pattern})
	}
	return append(all, parityOptions...)
}
