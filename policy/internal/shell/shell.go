// Package shell finds, without running it, the programs that a shell script runs and the files that
// it changes.
//
// The result is an upper bound: a script runs no program that Analyze does not list, unless the
// Script has an entry in Obscure. Parts of words that are known only when the script runs are holes
// in the texts of the result.
package shell

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Holes in texts stand for any text.
const (
	// Hole is a part of one word.
	Hole = '\uFFFE'
	// Split is a hole that may end the word and start others, or be none at all.
	Split = '\uFFFF'
	// Glob is a hole of names of files: the word may be several, all of which begin as it does.
	Glob = '\uFDD0'

	holes = string(Hole) + string(Split) + string(Glob)
)

const (
	// maxScript bounds a script, in bytes. Longer ones are obscure.
	maxScript = 1 << 20
	// maxDepth bounds how deep scripts are nested, such as in sh -c.
	maxDepth = 10
	// maxWords bounds the words that braces make, and maxBytes all scripts within scripts together, in
	// bytes.
	maxWords = 10_000
	maxBytes = 4 << 20
)

// Script is the result of Analyze.
type Script struct {
	// Commands are the simple commands, those that other commands run after those.
	Commands []Command
	// Writes are the files that redirections and known programs write, change or remove.
	Writes []string
	// MayWrite are files that commands may write: operands that may be something else, and the
	// directory of the repository, or a hole, for commands of git that may change any file in it.
	MayWrite []string
	// Names are words that may be names of files, for rules about files: arguments and values of
	// options.
	Names []string
	// Reads are the files that redirections read.
	Reads []string
	// Obscure has a text for each part that is not understood, such as "eval of a variable".
	Obscure []string
}

// Command is a simple command.
type Command struct {
	// Args are the words, the program first: without its directory if that is one of the system.
	// Git's global options that matter to no rule are left out.
	Args []string
	// Wraps means that the command runs another one, which is listed too, and does nothing else.
	Wraps bool
	// Builtin means that the shell does it, without a program and without an effect outside the
	// shell.
	Builtin bool
}

// String returns the command as a shell would read it, words apart by a blank and in quotes where
// necessary. It may have holes.
func (c Command) String() string {
	var b strings.Builder
	for i, word := range c.Args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quote(word))
	}
	return b.String()
}

// quote puts a word in quotes unless it is of harmless characters only.
func quote(word string) string {
	harmless := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return '-'
		}
		return r
	}
	if word != "" && strings.Trim(strings.Map(harmless, word), "-_@%+=:,./^"+holes) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Options configure Analyze.
type Options struct {
	// Bash means that bash runs the script; else any shell that follows POSIX does.
	Bash bool
	// Home is the home directory for "~"; empty if unknown.
	Home string
}

// Analyze analyses a script. Names of files in the result are relative to the directory in which it
// starts, or absolute. An empty script has no commands.
func Analyze(script string, o Options) Script {
	a := analyze(script, o, false)
	if a.moved { // also what comes before a cd may run after it
		a = analyze(script, o, true)
	}
	return a.found
}

func analyze(script string, o Options, moves bool) *analyzer {
	a := &analyzer{
		options: o, moves: moves, numbers: make(map[string]bool), others: make(map[string]bool),
		arrays: map[string]bool{
			"MAPFILE": true, "DIRSTACK": true, "GROUPS": true, "PIPESTATUS": true, "FUNCNAME": true,
		},
	}
	for _, name := range dynamic {
		a.others[name] = true
	}
	a.script(script, &state{functions: make(map[string]bool)})
	for _, name := range a.evaluated {
		if !a.numbers[name] || a.others[name] {
			a.obscure("a value that is evaluated, and is not certainly a number")
		}
	}
	if a.declares && a.unsets {
		a.obscure("functions that unset may remove")
	}
	for _, name := range a.compound {
		if a.arrays[name] || strings.ContainsAny(name, holes) {
			a.obscure("a declaration that may evaluate the values of an array")
		}
	}
	for _, name := range a.tested {
		if a.others[name] {
			a.obscure("a test of a variable that may be several words; put it in double quotes")
		}
	}
	for _, list := range []*[]string{
		&a.found.Writes, &a.found.MayWrite, &a.found.Names, &a.found.Reads,
		&a.found.Obscure,
	} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return a
}

// analyzer collects the result.
type analyzer struct {
	options Options
	found   Script
	depth   int
	// words and bytes are those of maxWords and maxBytes so far.
	words, bytes int
	// evaluated are the variables in arithmetic expressions, numbers those that the script sets to
	// numbers, and others those that it sets to something else.
	evaluated       []string
	numbers, others map[string]bool
	// moved means that a part of the script changes the directory; with moves each part may run after
	// that.
	moved, moves bool
	// declares and unsets mean that a part of the script declares functions, and removes some.
	declares, unsets bool
	// arrays are the variables that may be arrays, compound those that are declared with a value that
	// may start with "(", and tested those that test has without quotes.
	arrays           map[string]bool
	compound, tested []string
}

// state is what statements leave to those that follow.
type state struct {
	// dir is the directory relative to the first one; it may have holes.
	dir string
	// functions are the names that are certainly those of functions.
	functions map[string]bool
}

// fork returns the state of a part whose directory does not count for those that follow.
func (st *state) fork() *state {
	c := *st
	return &c
}

// join makes st the state after one of several ways, of which each forked it.
func (st *state) join(ways ...*state) {
	for _, w := range ways {
		if w.dir != st.dir {
			st.dir = string(Hole)
		}
	}
}

// obscure adds a part that is not understood.
func (a *analyzer) obscure(text string) { a.found.Obscure = append(a.found.Obscure, text) }

// script analyses the text of a script in a state.
func (a *analyzer) script(text string, st *state) {
	a.depth++
	defer func() { a.depth-- }()
	a.bytes += len(text)
	if a.depth > maxDepth || len(text) > maxScript || a.bytes > maxBytes {
		a.obscure("a script that is too long or too deep")
		return
	}
	if strings.ContainsAny(text, holes) {
		a.obscure("a script that is made at run time")
		return
	}
	// Shells take a carriage return for a character of a word, the parser does not.
	if strings.ContainsAny(text, "\x00\x01\x02\r") {
		a.obscure("a script with control characters")
		return
	}
	variants := []syntax.LangVariant{syntax.LangBash}
	if !a.options.Bash {
		variants = append(variants, syntax.LangPOSIX)
	}
	start := st.fork()
	var ways []*state
	for _, v := range variants {
		parser := syntax.NewParser(syntax.Variant(v), syntax.KeepComments(true))
		file, err := parser.Parse(strings.NewReader(text), "")
		if err != nil {
			a.obscure("a script that cannot be parsed: " + err.Error())
			return
		}
		syntax.Walk(file, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Comment:
				// The parser takes the next line for a part of the comment, which shells do not.
				line, _, _ := strings.Cut(text[n.Hash.Offset():], "\n")
				if strings.HasSuffix(line, "\\") {
					a.obscure("a comment that ends with a backslash")
				}
			case *syntax.Redirect:
				// Shells join lines that end with a backslash before they look for the delimiter.
				if n.Hdoc != nil && n.Word.Lit() != "" &&
					strings.Contains(text[n.OpPos.Offset():min(int(n.Hdoc.End().Offset())+2, len(text))], "\\\n") {
					a.obscure("a here-document with a backslash at the end of a line; quote its delimiter")
				}
				if n.Hdoc != nil && n.Word.Lit() != "" && !endsHere(text, n) {
					a.obscure("a here-document with its delimiter within a line; quote its delimiter")
				}
			}
			return true
		})
		way := &state{dir: start.dir, functions: make(map[string]bool)}
		maps.Copy(way.functions, start.functions)
		for _, s := range file.Stmts {
			a.statements([]*syntax.Stmt{s}, way)
			// A function is certain only behind a declaration that certainly runs.
			if f, ok := s.Cmd.(*syntax.FuncDecl); ok && f.Name != nil && len(s.Redirs) == 0 &&
				!s.Background && !s.Coprocess && findBuiltin(f.Name.Value) == nil {
				way.functions[f.Name.Value] = true
			}
		}
		ways = append(ways, way)
	}
	st.dir = ways[0].dir
	st.join(ways...)
}

// endsHere reports whether a here-document ends with a line that has only its delimiter. The parser
// also takes one for it that follows an expansion in a line.
func endsHere(text string, r *syntax.Redirect) bool {
	delimiter := r.Word.Lit()
	if strings.Contains(delimiter, `\`) {
		return true // it has no expansions
	}
	end := min(int(r.Hdoc.End().Offset()), len(text))
	body, ok := strings.CutSuffix(text[:end], delimiter)
	if r.Op == syntax.DashHdoc {
		body = strings.TrimRight(body, "\t")
	}
	return ok && strings.HasSuffix(body, "\n") && (end == len(text) || text[end] == '\n')
}

// inDir returns a name relative to the first directory.
func inDir(dir, name string) string {
	switch {
	case path.IsAbs(name) || dir == "":
		return path.Clean(name)
	case startsWithHole(name):
		return name // it may be absolute
	}
	return path.Join(dir, name)
}
