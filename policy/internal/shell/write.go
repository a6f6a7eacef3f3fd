package shell

import (
	"path"
	"slices"
	"strings"
)

// writer describes the operands of a program that it writes, changes or removes.
type writer struct {
	// first is the number of operands before those that are written: the mode of chmod.
	first int
	// last means that only the last operand is written, unless an option of target names it.
	last bool
	// values are letters of options with a value, outputs those whose value is a file that is
	// written.
	values  string
	outputs []string
	// target are the options that name the directory that is written.
	target []string
	// only means that operands are not written, just outputs. With moves they are, beside those.
	only, moves bool
	// if set, the program writes only with this option.
	with string
}

var targetDir = []string{"t", "target-directory"}

var writers = map[string]writer{
	"rm": {}, "rmdir": {}, "unlink": {}, "touch": {values: "dtr"}, "mkdir": {values: "m"},
	"mkfifo": {values: "m"},
	"tee":    {}, "truncate": {values: "rs"}, "shred": {values: "ns"}, "mknod": {values: "m"},
	"chmod": {first: 1}, "chown": {first: 1}, "chgrp": {first: 1}, "setfacl": {values: "mxMX"},
	"chattr":  {first: 1},
	"cp":      {last: true, values: "S", target: targetDir},
	"ln":      {last: true, values: "S", target: targetDir},
	"install": {last: true, values: "gmoS", target: targetDir},
	"rsync":   {last: true, values: "efBTM"},
	"scp":     {last: true, values: "cFiJlPS"}, "mv": {values: "S", target: targetDir, moves: true},
	"shuf": {only: true, values: "in", outputs: []string{"o", "output"}},
	"sed":  {with: "i", values: "efl"}, "gsed": {with: "i", values: "efl"},
	"perl": {with: "i", values: "eEIMm"},
	"sort": {only: true, values: "kStT", outputs: []string{"o", "output"}},
	"uniq": {first: 1, values: "fsw"}, "split": {first: 1, values: "abCln"},
	"csplit": {values: "bfn", first: 1},
	"curl": {only: true, outputs: []string{
		"o", "output", "D", "dump-header", "c", "cookie-jar", "trace", "trace-ascii", "output-dir",
		"stderr", "libcurl", "etag-save", "hsts", "alt-svc",
	}},
	"wget": {only: true, values: "ABDRIXQTUeiltw", outputs: []string{
		"O", "output-document", "o", "output-file", "P", "directory-prefix", "a", "append-output",
		"save-cookies", "rejected-log", "warc-file", "warc-tempdir", "hsts-file",
	}},
	"gcc": {only: true, outputs: []string{"o"}}, "cc": {only: true, outputs: []string{"o"}},
	"clang": {only: true, outputs: []string{"o"}}, "ld": {only: true, outputs: []string{"o"}},
	"g++": {only: true, outputs: []string{"o"}}, "c++": {only: true, outputs: []string{"o"}},
	"clang++": {only: true, outputs: []string{"o"}},
	"tree":    {only: true, values: "LPIH", outputs: []string{"o", "R"}},
	"tar":     {only: true, values: "bgKLNTVX", outputs: []string{"f", "file", "C", "directory"}},
	"unzip":   {only: true, outputs: []string{"d"}},
	"patch": {values: "ipBDgVYz", outputs: []string{
		"o", "output", "r", "reject-file", "d", "directory",
	}},
	"gzip": {}, "gunzip": {}, "bzip2": {}, "bunzip2": {}, "xz": {}, "unxz": {}, "zstd": {},
	"dos2unix": {}, "unix2dos": {}, "gofmt": {with: "w"}, "goimports": {with: "w"},
	"prettier": {with: "w"}, "black": {}, "rustfmt": {},
}

// packers are programs that replace a file by one with another extension.
var packers = []string{"gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd"}

// packs adds the files with other extensions that packers write.
func (a *analyzer) packs(args []string, st *state) {
	if !slices.Contains(packers, args[0]) {
		return
	}
	for _, name := range args[1:] {
		name = strings.TrimSuffix(name, path.Ext(name)) + string(Hole)
		a.found.MayWrite = append(a.found.MayWrite, inDir(st.dir, name))
	}
}

// writesHere reports whether a program writes files with names of its own into its directory.
func writesHere(args []string) bool {
	has := func(letter, long string) bool {
		return slices.ContainsFunc(args[1:], func(word string) bool {
			isLong := strings.HasPrefix(word, "--")
			return isLong && len(word) > 2 && strings.HasPrefix(long, word[:min(len(word), len(long))]) ||
				!isLong && strings.HasPrefix(word, "-") && strings.Contains(word, letter)
		})
	}
	switch args[0] {
	case "tar", "unzip", "cpio", "7z", "wget":
		return true
	}
	return args[0] == "curl" && has("O", "--remote-name")
}

// abbreviates reports whether a long option may be one of some.
func abbreviates(option string, names []string) bool {
	return option != "" && slices.ContainsFunc(names, func(name string) bool {
		return len(name) > 1 && strings.HasPrefix(name, option)
	})
}

// writes adds the files that a known program writes.
func (a *analyzer) writes(args []string, st *state) {
	if args[0] == "dd" {
		for _, word := range args[1:] {
			if name, ok := strings.CutPrefix(word, "of="); ok {
				a.write(name, st)
			}
		}
	}
	if writesHere(args) {
		a.write(".", st) // or a directory that an option names, which is a name as well
	}
	a.packs(args, st)
	if args[0] == "curl" && slices.ContainsFunc(args, func(w string) bool {
		return strings.Contains(w, "%output{")
	}) {
		a.write(string(Hole), st)
	}
	w, ok := writers[args[0]]
	if !ok {
		return
	}
	if args[0] == "tar" {
		if args, w = tarOptions(args, w); slices.ContainsFunc(args, tarLeaves) {
			a.write(string(Hole), st)
		}
	}
	u := a.usage(&w, args, st)
	if !u.acts {
		return
	}
	for _, name := range append(u.targets, w.written(args, u.operands)...) {
		a.write(name, st)
		switch {
		case strings.ContainsAny(u.suffix, "*/"):
			a.write(string(Hole), st)
		case u.suffix != "":
			a.write(name+u.suffix, st)
		}
	}
	if n := len(u.operands) - 1; len(u.dirs) == 0 && n > 0 && (w.last || w.moves) {
		u.dirs, u.operands = u.operands[n:], u.operands[:n] // the last one may be a directory
	}
	for _, dir := range u.dirs {
		for _, name := range u.operands {
			base := path.Base(name) // one that is made at run time could be anything
			if name = path.Join(dir, base); base[0] == '.' || !strings.ContainsAny(name, holes) {
				a.found.MayWrite = append(a.found.MayWrite, inDir(st.dir, name))
			}
		}
	}
}

// usage is how a command uses a writer.
type usage struct {
	// targets are values of options that are written, dirs those of them that are directories for the
	// operands.
	operands, targets, dirs []string
	// suffix is that of the copies that it makes of its operands; empty without.
	suffix string
	// acts means that it writes.
	acts bool
}

// usage returns how the command args uses w, which it adapts to that.
func (a *analyzer) usage(w *writer, args []string, st *state) (u usage) {
	u.acts = w.with == ""
	for i := 1; i < len(args); i++ {
		word := args[i]
		option, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		next := func() string {
			if hasValue {
				return value
			}
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch {
		case mayBeOption(word):
			a.write(string(Hole), st)
		case endsOptions(args[1:], i-1):
			u.operands = append(u.operands, args[i+1:]...)
			i = len(args)
		case !strings.HasPrefix(word, "-") || word == "-":
			u.operands = append(u.operands, word)
		case strings.HasPrefix(word, "--"):
			if abbreviates(option, []string{"in-place", "write"}) {
				u.acts, u.suffix = true, value
			}
			if abbreviates(option, w.outputs) {
				u.targets = append(u.targets, next())
			} else if abbreviates(option, w.target) {
				u.targets, w.only = append(u.targets, next()), !w.moves
				u.dirs = append(u.dirs, u.targets[len(u.targets)-1])
			}
		default:
			if w.with != "" && strings.Contains(option, w.with) {
				u.acts = true
			}
			for j := range len(word) - 1 {
				letter, rest := word[j+1:j+2], word[j+2:]
				if letter == "i" && w.with == "i" {
					u.suffix = rest
					break
				}
				output, target := slices.Contains(w.outputs, letter), slices.Contains(w.target, letter)
				if !output && !target && !strings.Contains(w.values, letter) {
					continue
				}
				if rest == "" {
					hasValue = false
					rest = next()
				}
				if output || target {
					u.targets = append(u.targets, rest)
					if target {
						u.dirs = append(u.dirs, rest)
					}
					w.only = w.only || target && !w.moves
				}
				break
			}
		}
	}
	return u
}

// tarLeaves reports whether tar with an option may write files outside of the directory in which
// it unpacks.
func tarLeaves(option string) bool {
	name, long := strings.CutPrefix(option, "--")
	name, _, _ = strings.Cut(name, "=")
	return long && abbreviates(name, []string{"absolute-names", "one-top-level"}) ||
		!long && strings.HasPrefix(option, "-") && strings.Contains(option, "P")
}

// written returns the operands that a program writes.
func (w writer) written(args, operands []string) []string {
	if args[0] == "sed" || args[0] == "gsed" || args[0] == "perl" {
		w.first = 1 // the script, unless an option has it
		if slices.ContainsFunc(args, func(w string) bool {
			w, _, _ = strings.Cut(w, "i") // the ending of copies
			return strings.HasPrefix(w, "--express") || strings.HasPrefix(w, "--f") ||
				strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.ContainsAny(w, "efE")
		}) {
			w.first = 0
		}
	}
	if strings.HasPrefix(args[0], "ch") && slices.ContainsFunc(args[1:], func(w string) bool {
		return strings.HasPrefix(w, "--ref") || args[0] == "chmod" && strings.HasPrefix(w, "-") &&
			!strings.HasPrefix(w, "--") && strings.ContainsAny(w, "rwxXstugo,=")
	}) { // the mode is no operand
		w.first = 0
	}
	switch {
	case w.only:
		return nil
	case args[0] == "ln" && len(operands) == 1:
		return []string{path.Base(operands[0])}
	case w.last && len(operands) > 0 && !(args[0] == "install" && slices.ContainsFunc(args,
		func(w string) bool { return strings.HasPrefix(w, "-d") || strings.HasPrefix(w, "--d") })):
		return into(operands[len(operands)-1], operands[:len(operands)-1])
	case args[0] == "patch" && len(operands) == 0:
		return []string{"."}
	}
	return operands[min(w.first, len(operands)):]
}

// tarOptions returns the arguments of tar with a dash before the first options. An archive that is
// only read is no output.
func tarOptions(args []string, w writer) ([]string, writer) {
	args = slices.Clone(args)
	if len(args) > 1 && args[1] != "" && args[1][0] != '-' {
		args[1] = "-" + args[1]
	}
	makes := slices.ContainsFunc(args[1:], func(word string) bool {
		long := []string{"--create", "--append", "--update", "--concatenate", "--catenate", "--delete"}
		return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") &&
			strings.ContainsAny(word, "cruA"+holes) || slices.ContainsFunc(long, func(l string) bool {
			return len(word) > 2 && strings.HasPrefix(l, word)
		})
	})
	if !makes {
		w.outputs, w.values = []string{"C", "directory"}, w.values+"f"
	}
	return args, w
}

// into returns the names of files that are copied to a target: in it if that is certainly a
// directory.
func into(target string, files []string) (names []string) {
	if target != "." && !strings.HasSuffix(target, "/") || len(files) == 0 {
		return []string{target}
	}
	for _, name := range files {
		if strings.ContainsAny(name, holes) || strings.HasSuffix(name, "/") {
			return []string{target}
		}
		names = append(names, path.Join(target, path.Base(name)))
		if i := strings.LastIndexByte(name, ':'); i >= 0 { // of another host
			names = append(names, path.Join(target, path.Base(name[i+1:])))
		}
	}
	return names
}

// gitChanges are subcommands of git that may change any file of a repository.
var gitChanges = []string{
	"am", "apply", "checkout", "checkout-index", "cherry-pick", "clean", "merge", "pull", "read-tree",
	"rebase", "reset", "restore", "revert", "sparse-checkout", "stash", "switch",
}

// gitMakes are subcommands of git that may write files that their operands name.
var gitMakes = []string{
	"archive", "bundle", "checkout", "clone", "format-patch", "init", "merge-file", "worktree",
}

// gitWrites adds the files that a subcommand of git changes in a directory.
func (a *analyzer) gitWrites(args []string, dir string) {
	sub := args[0]
	may := func(name string) { a.found.MayWrite = append(a.found.MayWrite, name) }
	if slices.Contains(gitChanges, sub) {
		if dir == "" || dir == "." {
			may(".")
		} else { // which may be a part of the repository
			may(string(Hole))
		}
	}
	named := sub == "rm" || sub == "mv" || sub == "restore"
	for _, word := range args[1:] {
		switch {
		case word == "--":
			named = named || sub == "checkout"
		case named && strings.HasPrefix(word, "--pathspec"):
			a.write(string(Hole), &state{})
		case word == "" || strings.HasPrefix(word, "-"):
		case named && (word[0] == ':' || strings.ContainsAny(word, "*?[\\")): // a pattern of git
			a.write(string(Hole), &state{})
		case named:
			a.write(word, &state{dir: dir})
		case slices.Contains(gitMakes, sub):
			may(inDir(dir, word))
		}
	}
}
