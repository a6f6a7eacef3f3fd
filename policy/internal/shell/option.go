package shell

import (
	"slices"
	"strings"
)

// options are those of a program that run other programs, or read a file that does.
type options struct {
	// short are letters, long are names without dashes, which may be abbreviated.
	short string
	long  []string
	// words are arguments that do so, in any place, or the start of such an argument.
	words []string
	// literal: words that are made at run time are not taken for options.
	literal bool
}

// everything means that any use may run programs.
var everything = options{words: []string{""}}

// compilers load code and run programs that these options name.
var compilers = options{
	words: []string{"-wrapper", "-B", "-fplugin", "-Xclang", "@"}, literal: true,
}

// running are the programs that are known for something else, but run others if told so.
var running = map[string]options{
	"tar": {short: "IF", long: []string{
		"checkpoint-action", "to-command", "use-compress-program", "rsh-command", "rmt-command",
		"info-script", "new-volume-script",
	}},
	"bsdtar": {long: []string{"use-compress-program"}},
	"zip":    {short: "T", long: []string{"unzip-command", "test"}},
	"sort":   {long: []string{"compress-program"}},
	"split":  {long: []string{"filter"}},
	"diff3":  {long: []string{"diff-program"}}, "sdiff": {long: []string{"diff-program"}},
	"cpio": {long: []string{"rsh-command"}}, "install": {words: []string{"--strip-p"}, literal: true},
	"gcc": compilers, "g++": compilers, "cc": compilers, "c++": compilers, "clang": compilers,
	"clang++": compilers,
	"rg":      {long: []string{"pre", "hostname-bin"}},
	"fd":      {short: "xX", long: []string{"exec", "exec-batch"}},
	"fdfind":  {short: "xX", long: []string{"exec", "exec-batch"}},
	"rsync":   {short: "e", long: []string{"rsh", "rsync-path"}},
	"ssh":     {short: "oFISW"},
	"scp":     {short: "oFSD"},
	"sftp":    {short: "oFSDb"},
	"curl":    {short: "K", long: []string{"config"}},
	"wget":    {short: "e", long: []string{"use-askpass", "config", "execute"}},
	"man":     {short: "PHC", long: []string{"pager", "html", "config-file", "preprocessor"}},
	"go": {
		long: []string{"exec", "toolexec", "vettool", "overlay", "modfile"},
		words: []string{
			"-exec", "-toolexec", "-vettool", "-overlay", "-modfile", "-mod", "-ldflags", "-gcflags",
			"-gccgoflags", "-asmflags", "-compiler", "-fix", "-debug-", "-http", "env", "generate",
		},
	},
	"make": {
		short: "fI", long: []string{"eval", "file", "makefile", "include-dir"},
		words: []string{"SHELL="},
	},
	"docker":  {words: []string{"plugin", "buildx"}},
	"openssl": {words: []string{"-engine", "-provider", "engine"}},
	"file":    {short: "C", long: []string{"compile"}},
	"date":    {short: "s", long: []string{"set"}},
	"nc":      {short: "ec"},
	"ncat":    {short: "ec", long: []string{"exec", "sh-exec", "lua-exec"}},

	"vi": everything, "vim": everything, "nvim": everything, "view": everything, "ex": everything,
	"ed": everything, "emacs": everything, "nano": everything, "less": everything, "more": everything,
	"su": everything, "runuser": everything, "script": everything, "gdb": everything,
	"setarch": everything, "linux32": everything, "linux64": everything, "i386": everything,
	"x86_64": everything, "at": everything, "batch": everything, "crontab": everything,
	"systemd-run": everything,
	"screen":      everything, "tmux": everything, "expect": everything, "socat": everything,
	"xdg-open": everything, "open": everything,
}

// runs reports options of a program that make it run another one.
func (a *analyzer) runs(args []string) {
	o, ok := running[args[0]]
	if !ok {
		return
	}
	report := func(word string) {
		a.obscure(args[0] + " with " + Printable(word) + ", which may run programs")
	}
	operands := false
	for i, word := range args[1:] {
		if args[0] == "go" && strings.HasPrefix(word, "--") {
			word = word[1:] // the same option
		}
		bare, _, _ := strings.Cut(word, "=")
		switch {
		case slices.ContainsFunc(o.words, func(w string) bool { return strings.HasPrefix(word, w) }):
			report(word)
		case operands:
		case endsOptions(args[1:], i):
			operands = true
		case o.literal:
		case mayBeOption(word), i == 0 && args[0] == "tar" && strings.ContainsAny(word, holes):
			report("an option that is made at run time")
		case strings.HasPrefix(word, "--"):
			if len(bare) > 2 && slices.ContainsFunc(o.long, func(l string) bool {
				return strings.HasPrefix(l, bare[2:])
			}) {
				report(word)
			}
		case strings.HasPrefix(word, "-") && strings.ContainsAny(word[1:], o.short),
			i == 0 && args[0] == "tar" && strings.ContainsAny(word, o.short):
			report(word)
		}
	}
}

// Printable returns a text with holes for messages.
func Printable(text string) string {
	return strings.NewReplacer(string(Hole), "…", string(Split), "…", string(Glob), "…").Replace(text)
}

// harmless are settings of git -c that select no program, or the start of one.
var harmless = []string{
	"color.", "user.name=", "user.email=", "core.quotepath=", "core.autocrlf=", "core.filemode=",
	"core.ignorecase=", "advice.", "init.defaultbranch=", "commit.gpgsign=false",
	"tag.gpgsign=false", "safe.directory=", "log.", "status.", "diff.noprefix=", "diff.renames=",
	"diff.algorithm=", "merge.conflictstyle=", "pull.rebase=true", "pull.rebase=false",
	"push.default=", "gc.auto=", "column.",
}

// isHarmless reports whether a setting selects no program.
func isHarmless(setting string) bool {
	setting = strings.ToLower(setting)
	return setting == "core.pager=cat" || !strings.ContainsAny(setting, holes) &&
		slices.ContainsFunc(harmless, func(h string) bool { return strings.HasPrefix(setting, h) })
}

// Options of git before the subcommand that matter to no rule, and options and subcommands that run
// programs or write files.
var (
	gitPlain = []string{
		"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects",
	}
	gitRuns = []string{
		"exec", "upload-pack", "receive-pack", "open-files-in-pager", "extcmd", "ext-diff", "textconv",
		"template", "config", "tree-filter", "index-filter", "msg-filter", "env-filter",
		"commit-filter", "parent-filter", "tag-name-filter", "edit", "interactive", "patch", "tool",
		"output", "edit-description", "edit-todo",
	}
	// gitShows are subcommands that show changes.
	gitShows    = []string{"log", "show", "diff", "blame", "grep", "format-patch", "whatchanged"}
	gitCommands = []string{
		"bisect", "filter-branch", "submodule", "difftool", "mergetool", "daemon", "instaweb", "gui",
		"citool", "send-email", "p4", "svn", "shell", "hook", "for-each-repo", "maintenance",
		"web--browse", "remote-ext", "cvsserver", "upload-pack", "help", "config",
		"bugreport",
	}
)

// git reports options of git that run programs, and returns its arguments without the harmless
// options before the subcommand. In another directory git may run programs that a repository there
// names, so it also adds the command with that directory, which needs a rule of its own.
func (a *analyzer) git(args []string, st *state) []string {
	rest, dir := args[1:], st.dir
	report := func(word string) {
		a.obscure("git with " + Printable(word) + ", which may run programs")
	}
	for len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || startsWithHole(rest[0])) {
		word := rest[0]
		rest = rest[1:]
		switch {
		case word == "--version" || word == "--help":
			return []string{"git", word}
		case slices.Contains(gitPlain, word):
		case word == "-C" && len(rest) > 0 && !mayBeSeveral(rest[0]):
			dir = inDir(dir, rest[0])
			rest = rest[1:]
		case word == "-c" && len(rest) > 0:
			if !isHarmless(rest[0]) {
				report("-c " + rest[0])
			}
			rest = rest[1:]
		default:
			report(word)
		}
	}
	if len(rest) == 0 {
		return []string{"git"}
	}
	if dir != "" && dir != "." {
		a.add(append([]string{"git", "-C", dir}, rest...), false)
	}
	sub := rest[0]
	shows := slices.Contains(gitShows, sub) || sub == "stash" && slices.Contains(rest, "show")
	cluster := func(word, letters string) bool {
		return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") &&
			strings.ContainsAny(word[1:], letters)
	}
	for i, word := range rest[1:] {
		if endsOptions(rest[1:], i) {
			break
		}
		option, _, _ := strings.Cut(word, "=")
		long := strings.HasPrefix(word, "--") && len(option) > 2
		switch {
		case mayBeOption(word):
			report("an option that is made at run time")
		case shows && (word == "--text" || word == "--patch"):
		case long && slices.ContainsFunc(gitRuns, func(l string) bool {
			return strings.HasPrefix(l, option[2:])
		}):
			report(word)
		case strings.Contains(word, "::"): // a transport
			report(word)
		case sub == "grep" && cluster(word, "O"), sub == "rebase" && cluster(word, "xi"),
			sub == "clone" && cluster(word, "uc"):
			report(word)
		}
	}
	if slices.Contains(gitCommands, sub) || gitEdits(sub, rest[1:]) {
		report(sub)
	}
	for _, word := range rest[1:] { // a file of a commit
		if i := strings.IndexByte(word, ':'); i >= 0 {
			a.name(word[i+1:], &state{dir: dir})
			a.name(word[strings.LastIndexByte(word, ':')+1:], &state{dir: dir})
		}
	}
	a.gitWrites(rest, dir)
	return append([]string{"git"}, rest...)
}

// sedPlain are options of sed without a value.
var sedPlain = []string{"--quiet", "--silent", "--regexp-extended", "--posix", "--null-data"}

// sed reports scripts of sed that run programs or write files.
func (a *analyzer) sed(args []string) {
	var scripts []string
	first, given := "", false
	for i := 1; i < len(args); i++ {
		word := args[i]
		switch {
		case startsWithHole(word):
			a.obscure("a script of sed that is made at run time")
			return
		case word == "-e" || word == "--expression":
			if i++; i < len(args) {
				scripts = append(scripts, args[i])
			}
			given = true
		case strings.HasPrefix(word, "-e"):
			scripts, given = append(scripts, word[2:]), true
		case strings.HasPrefix(word, "--expression="):
			scripts, given = append(scripts, strings.TrimPrefix(word, "--expression=")), true
		case strings.HasPrefix(word, "-i"), strings.HasPrefix(word, "--in-place"):
			if strings.ContainsAny(word, "/*"+holes) { // what follows is the ending, or the name, of a copy
				a.obscure("the options of sed")
				return
			}
		case strings.HasPrefix(word, "-") && len(word) > 1 && strings.Trim(word[1:], "nErsuz") == "":
		case slices.Contains(sedPlain, word):
		case strings.HasPrefix(word, "-") && len(word) > 1:
			a.obscure("the options of sed")
			return
		case first == "":
			first = word
		}
	}
	if !given {
		scripts = append(scripts, first)
	}
	for _, s := range scripts {
		if !isPlainSed(s) {
			a.obscure("a script of sed that may run programs or write files")
			return
		}
	}
}

// isPlainSed reports whether a script of sed has only commands that neither run programs nor write
// files.
func isPlainSed(script string) bool {
	if strings.ContainsAny(script, holes) {
		return false
	}
	s := script
	for {
		s = strings.TrimLeft(s, " \t\n;{}")
		if s == "" {
			return true
		}
		var ok bool
		for range 2 { // addresses
			if s, ok = sedAddress(s); !ok {
				return false
			}
			if s = strings.TrimLeft(s, " \t"); !strings.HasPrefix(s, ",") {
				break
			}
			s = strings.TrimLeft(s[1:], " \t+~")
		}
		s = strings.TrimLeft(s, " \t!")
		if s == "" {
			return false
		}
		command := s[0]
		s = s[1:]
		switch command {
		case '{', '}', 'p', 'P', 'd', 'D', 'n', 'N', 'g', 'G', 'h', 'H', 'x', '=', 'z':
		case 'q', 'Q', 'l':
			s = strings.TrimLeft(s, " \t0123456789")
		case 's', 'y':
			if s == "" {
				return false
			}
			mark := s[0]
			s = s[1:]
			for range 2 {
				if s, ok = sedUntil(s, mark); !ok {
					return false
				}
			}
			if command == 's' {
				s = strings.TrimLeft(s, "gpiImM0123456789")
			}
		case '#':
			_, s, _ = strings.Cut(s, "\n")
			continue
		default:
			return false // among them e, r, w, a text, and labels
		}
		if s = strings.TrimLeft(s, " \t"); s != "" && !strings.ContainsRune(";\n}#", rune(s[0])) {
			return false
		}
	}
}

// sedAddress skips an address.
func sedAddress(s string) (rest string, ok bool) {
	switch {
	case s == "":
		return s, true
	case s[0] == '/':
		s, ok = sedUntil(s[1:], '/')
		return strings.TrimLeft(s, "IM"), ok
	case s[0] == '\\' && len(s) > 1:
		s, ok = sedUntil(s[2:], s[1])
		return strings.TrimLeft(s, "IM"), ok
	}
	return strings.TrimLeft(s, "0123456789$~"), true
}

// sedUntil skips to behind the next mark that no backslash precedes. A mark in brackets ends the
// text for sed too, unless it is in a bracket expression, which is not plain then.
func sedUntil(s string, mark byte) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			set, ok := bracket(s[i:])
			if !ok || strings.IndexByte(set, mark) >= 0 || strings.Contains(set, `\]`) {
				return "", false
			}
			i += len(set) - 1
		case mark:
			return s[i+1:], true
		case '\n':
			return "", false
		}
	}
	return "", false
}

// bracket returns the bracket expression at the start of s.
func bracket(s string) (set string, ok bool) {
	i := 1
	if strings.HasPrefix(s[i:], "^") {
		i++
	}
	for first := i; i < len(s); i++ {
		switch {
		case s[i] == ']' && i > first: // the first one is a character
			return s[:i+1], true
		case s[i] == '[' && i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0:
			end := strings.Index(s[i+2:], s[i+1:i+2]+"]")
			if end < 0 {
				return "", false
			}
			i += end + 3
		}
	}
	return "", false
}

// awk reports programs of awk that run programs or write files.
func (a *analyzer) awk(args []string) {
	program := false // the program was seen
	for i := 1; i < len(args); i++ {
		word := args[i]
		switch {
		case !program && strings.ContainsAny(word, holes), strings.ContainsAny(word, "|>@"),
			strings.Contains(word, "system"), strings.Contains(word, "getline"):
			a.obscure("a program of awk that may run programs or write files")
			return
		case program:
		case word == "-F" || word == "-v":
			if i++; i < len(args) && mayBeSeveral(args[i]) {
				a.obscure("the options of awk")
				return
			}
		case word == "--", strings.HasPrefix(word, "-F"), strings.HasPrefix(word, "-v"):
		case strings.HasPrefix(word, "-"):
			a.obscure("the options of awk")
			return
		default:
			program = true
		}
	}
}
