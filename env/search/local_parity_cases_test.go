//go:build unix

package search_test

import (
	"github.com/sandboxagent/sandboxagent/env/search"
)

// parityCases are those that are compared with ripgrep. Not among them are counts and limits of
// matches of several lines, which ripgrep counts as matches and Grep as lines, and limits with
// lines around matches, among which ripgrep shows more matches.
var parityCases = func() (all []search.GrepOptions) {
	for _, pattern := range parityPatterns {
		all = append(all, search.GrepOptions{Pattern: pattern})
	}
	return append(all, parityOptions...)
}()

// parityPatterns are searched for without options.
var parityPatterns = []string{
	// Texts.
	"func", "nil", "ErrNotExist", "zzqqyy", "a", "return nil", "  ", "\t", `"`, "'", "`", `\\`, "/", "//", "日本語", "ö", "😀", "русский", "Größe", "�", "\r", "\v", "\f",
	// Nothing and empty matches.
	"", "^", "$", "^$", "x*", "^ *$", `\A\z`,
	// Parts before, within and behind texts.
	`func \w+`, `\w+Error\(`, `[a-z]+Error`, `Err[A-Z]\w*`, `\w+\(\) \{`, `if err != nil \{ .* \}`, `return .*, err`, `"[^"]*"`, `'[^']*'`, `\([^()]*\)`, `[a-z]+_[a-z]+`,
	`(?:foo|bar)_?(?:Bar|bar)`, `ma(?:in|p)`, `(?:ab)+c`, `a{8}`, `a{3,5}b`, `a{20,}`, `.*nil.*`, `^.*$`, `^.+$`, `^.$`, `.{200}`,
	// Alternatives.
	"ErrNotExist|ErrPermission|ErrClosed", "func|type|var|const", "TODO|FIXME", "error|err|e",
	"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen", "日本|русский|école", "^func|nil$", "^(?:a|b)$",
	// Anchors and words.
	"^func", "nil$", "^package", "}$", `^\t`, `^\s+return`, `\s+$`, `^\S`, `\bnil\b`, `\berr\b`, `\Bil\b`, `\bf`, `e\b`, `\B_\B`, `\Afunc`, `end\z`, `^^a`, `a$$`, `a^`, `$a`, `^a|b$`,
	`(?:^|\s)err(?:$|\s)`, `\bE\w+`, `\w\b\W`, `^#`, `\{$`,
	// Cases.
	"(?i)func", "(?i)ERRNOTEXIST", "(?i)k", "(?i)s", "(?i)kelvin", "(?i)größe", "(?i)STRASSE", "(?i)école", "(?i)ωmega", "(?i)[a-c]bc", "(?i)i", "(?i)ı", "(?i)todo|fixme", "(?i:f)unc",
	"f(?i)UNC", "(?i)русский", "(?i)k.*s", "(?i)mask", "(?i)[^a-z ]k", "(?i)Œuvre", "(?i)disk", "(?i)^func.*nil",
	// Classes.
	"[0-9]+", "[0-9]{4}-[0-9]{2}-[0-9]{2}", `\d+\.\d+`, `0[xX][0-9a-fA-F]+`, "[aeiou]{3}", `[^\x00-\x7f]`, "[a-z][A-Z]", `[\w.+-]+@[\w-]+\.[\w.]+`, `[[:alpha:]]+`, `[[:digit:]]{2}`,
	`[[:upper:]]{3,}`, `[[:punct:]]{3}`, `[^[:ascii:]]`, `[а-я]+`, `[ö-ü]`, `[日-本]`, `\pL+`, `\p{Lu}\p{Ll}`, `\p{Greek}`, `\p{Han}+`, `\PL{3}`, `[^\pL\d\s]`, `[\d\s]+`,
	`\S+\s\S+`, `\W{4}`, `[.]`, `[\]]`, `[a\-z]`, `[-a]`, `[*+?]`, `[😀-😎]`, `\x41`, `\x{1F600}`, `[\x00-\x1f]`, `[ſK]`, `[^\r]\r[^\r]`,
	// Quoted characters, groups and flags.
	`a\.b`, `a\+b`, `a\*b`, `a\(b\)`, `a\{2\}`, `a\\b`, `a\$b`, `(?P<name>func) (?P<rest>\w+)`, `(a)(b)(c)`, `a.*?b`, `a+?`, `(?U)a+b`,
	`(?:a*)*b`, `(?:a|aa)+b`, `(?:.*){3}nil`, `https?://[^\s"]+`, `(?:\d{1,3}\.){3}\d{1,3}`,
}

// parityOptions are searches with options.
var parityOptions = []search.GrepOptions{
	// Texts that are no expressions.
	{Pattern: "a.b", Literal: true},
	{Pattern: "a*b a(b)", Literal: true},
	{Pattern: `a\b`, Literal: true},
	{Pattern: "[", Literal: true},
	{Pattern: "fmt.Errorf(", Literal: true},
	{Pattern: "^", Literal: true},
	{Pattern: "$b", Literal: true},
	{Pattern: "(?i)", Literal: true},
	{Pattern: "the end", Literal: true},
	{Pattern: "größe", Literal: true, IgnoreCase: true},
	{Pattern: "a|b", Literal: true, IgnoreCase: true},
	{Pattern: "ERR != NIL", Literal: true, IgnoreCase: true},
	{Pattern: "\u017f", Literal: true, IgnoreCase: true},
	{Pattern: "-e", Literal: true},
	{Pattern: "--", Literal: true},
	// Cases.
	{Pattern: "func", IgnoreCase: true},
	{Pattern: "errnotexist|ERRPERMISSION", IgnoreCase: true},
	{Pattern: `\bMAIN\b`, IgnoreCase: true},
	{Pattern: "[a-f]{4}", IgnoreCase: true},
	{Pattern: "K", IgnoreCase: true},
	{Pattern: "(?-i)nil", IgnoreCase: true},
	{Pattern: `\w+K`, IgnoreCase: true},
	{Pattern: "[^k]s", IgnoreCase: true},
	{Pattern: "ОНЛАЙН|РУССКИЙ", IgnoreCase: true},
	// Several lines.
	{Pattern: `nil \}\nFUNC`, Multiline: true},
	{Pattern: `func.*?\{\n`, Multiline: true},
	{Pattern: `^\n+`, Multiline: true},
	{Pattern: `\n\n\n`, Multiline: true},
	{Pattern: `# comment.*?comment \*/`, Multiline: true},
	{Pattern: `^// .*\n/\*`, Multiline: true},
	{Pattern: `\Afunc`, Multiline: true},
	{Pattern: `end\n\z`, Multiline: true},
	{Pattern: "func main", Multiline: true, Literal: true},
	{Pattern: `the end$`, Multiline: true},
	{Pattern: `if err != nil \{\s+return[^{}]*\}`, Multiline: true},
	{Pattern: `import \([^()]*"fmt"`, Multiline: true},
	{Pattern: `}\s*$\n^func`, Multiline: true},
	{Pattern: `a lone.*a form`, Multiline: true},
	{Pattern: "NIL \\}\nfunc", Multiline: true, IgnoreCase: true},
	{Pattern: `aaa\w*\nabc`, Multiline: true, Before: 1, After: 2},
	{Pattern: `^package \w+\n`, Multiline: true, Mode: search.GrepFiles},
	// Lines around matches.
	{Pattern: "return nil", Before: 1},
	{Pattern: "return nil", After: 1},
	{Pattern: "nil", Before: 2, After: 2},
	{Pattern: "^$", Before: 3, After: 1},
	{Pattern: "zzqqyy", Before: 5, After: 5},
	{Pattern: "^package", Before: 5, After: 3},
	{Pattern: "end$", After: 50},
	{Pattern: "^b$", Before: 1},
	{Pattern: "FUNC", Before: 100},
	{Pattern: "abcabc", Before: 1, After: 1, IgnoreCase: true},
	{Pattern: "lorem", Before: 1, After: 1},
	// Names.
	{Pattern: "nil", Glob: "*.go"},
	{Pattern: "nil", Glob: "*.{go,py}"},
	{Pattern: "nil", Glob: "sub/**"},
	{Pattern: "nil", Glob: "**/*.go"},
	{Pattern: "nil", Glob: "*_test.go"},
	{Pattern: "nil", Glob: "[a-m]*.go"},
	{Pattern: "nil", Glob: "*.log"},
	{Pattern: "nil", Glob: "**/deeper/*"},
	{Pattern: "nil", Glob: `star\*`},
	{Pattern: "nil", Glob: `\[class\]`},
	{Pattern: "nil", Glob: "*.go", Exclude: "*_test.go"},
	{Pattern: "nil", Exclude: "*.go"},
	{Pattern: "nil", Exclude: "sub/**"},
	{Pattern: "nil", Exclude: "*.{go,log,txt}"},
	{Pattern: "nil", Glob: ".*"},
	{Pattern: "nil", Glob: "{Makefile,README.md}"},
	{Pattern: "nil", Glob: "*", Exclude: "[!a-z]*.go"},
	{Pattern: "nil", Types: []string{"go"}},
	{Pattern: "nil", Types: []string{"py", "c"}},
	{Pattern: "end", Types: []string{"make", "json", "yaml"}},
	{Pattern: "nil", Types: []string{"go"}, Exclude: "*_test.go"},
	{Pattern: "e", Types: []string{"md"}, Glob: "R*"},
	{Pattern: "the", Types: []string{"txt", "html", "css", "sh"}},
	// Files and counts.
	{Pattern: "nil", Mode: search.GrepFiles},
	{Pattern: "zzqqyy", Mode: search.GrepFiles},
	{Pattern: "", Mode: search.GrepFiles},
	{Pattern: "^$", Mode: search.GrepFiles},
	{Pattern: "TODO|FIXME", Mode: search.GrepFiles, Types: []string{"go"}},
	{Pattern: "nil", Mode: search.GrepCounts},
	{Pattern: "", Mode: search.GrepCounts},
	{Pattern: "^$", Mode: search.GrepCounts},
	{Pattern: `\bthe\b`, Mode: search.GrepCounts, IgnoreCase: true},
	{Pattern: "e", Mode: search.GrepCounts, Exclude: "*.go"},
	// Limits.
	{Pattern: "nil", MaxFileMatches: 1},
	{Pattern: "e", MaxFileMatches: 3},
	{Pattern: "^", MaxFileMatches: 2},
	{Pattern: "nil", MaxFileMatches: 2, Mode: search.GrepCounts},
	{Pattern: "nil", MaxFileMatches: 1, Mode: search.GrepFiles},
	{Pattern: "FUNC", MaxFileMatches: 1},
	// What is ignored, and folders.
	{Pattern: "nil", NoIgnore: true},
	{Pattern: "nil", NoIgnore: true, Mode: search.GrepFiles},
	{Pattern: "nil", NoIgnore: true, Glob: "*.log"},
	{Pattern: "func", NoIgnore: true, Types: []string{"go"}},
	{Pattern: "e", NoIgnore: true, Mode: search.GrepCounts, Exclude: "*.go"},
}

// parityFolders are searches below a folder of nasty names.
var parityFolders = []search.GrepOptions{
	{Pattern: "nil", Path: "sub"},
	{Pattern: "nil", Path: "sub/deeper/"},
	{Pattern: "nil", Path: "tmp", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "all", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "tmp/in", Glob: "*.tmp"},
	{Pattern: "nil", Path: "nested"},
	{Pattern: "nil", Path: "build", Mode: search.GrepFiles},
	{Pattern: "nil", Path: "link to folder", Glob: "*.go"},
	{Pattern: "nil", Path: "all/in", Exclude: "*.c"},
	{Pattern: "nil", Path: ".hidden.d"},
	{Pattern: "nil", Path: "no files"},
}
