package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// statements analyses statements that run one after the other.
func (a *analyzer) statements(list []*syntax.Stmt, st *state) {
	for _, s := range list {
		before := st.dir
		a.statement(s, st)
		st.join(&state{dir: before}) // the shell goes on after a cd that fails
	}
}

// statement analyses one statement, and leaves the state after its success.
func (a *analyzer) statement(s *syntax.Stmt, st *state) {
	if s.Background || s.Coprocess {
		st = st.fork()
	}
	if s.Negated {
		defer st.join(st.fork())
	}
	stdin := a.redirects(s.Redirs, st)
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		a.call(c, stdin, st)
	case *syntax.BinaryCmd:
		a.binary(c, st)
	case *syntax.Subshell:
		a.statements(c.Stmts, st.fork())
	case *syntax.Block:
		a.statements(c.Stmts, st)
	case *syntax.IfClause:
		a.conditional(c, st)
	case *syntax.WhileClause:
		a.loop(st, func(st *state) {
			a.statements(c.Cond, st)
			a.statements(c.Do, st)
		})
	case *syntax.ForClause:
		switch l := c.Loop.(type) {
		case *syntax.WordIter:
			numbers := l.InPos.IsValid()
			for _, word := range a.fields(l.Items, st) {
				numbers = numbers && isNumber(word)
			}
			a.assign(l.Name.Value, numbers)
		case *syntax.CStyleLoop:
			a.arithmetic(st, l.Init, l.Cond, l.Post)
		}
		a.loop(st, func(st *state) { a.statements(c.Do, st) })
	case *syntax.CaseClause:
		a.word(c.Word, st)
		var ways []*state
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				a.word(p, st)
			}
			way := st.fork()
			a.statements(item.Stmts, way)
			ways = append(ways, way)
		}
		st.join(ways...)
	case *syntax.FuncDecl:
		a.declares = true
		body := st.fork()
		if a.moves {
			body.dir = string(Hole)
		}
		a.statement(c.Body, body)
		if c.Name == nil || findBuiltin(c.Name.Value) != nil {
			a.obscure("a function with the name of a builtin")
		}
	case *syntax.ArithmCmd:
		a.arithmetic(st, c.X)
	case *syntax.TestClause:
		a.test(c.X, st)
	case *syntax.DeclClause:
		a.declaration(c, st)
	case *syntax.LetClause:
		a.arithmetic(st, c.Exprs...)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			a.statement(c.Stmt, st)
		}
	case *syntax.CoprocClause:
		a.coprocess(c, st)
	default:
		a.obscure("a construct of another shell")
	}
}

// coprocess analyses a statement whose pipes are in an array.
func (a *analyzer) coprocess(c *syntax.CoprocClause, st *state) {
	if c.Name != nil {
		name := a.word(c.Name, st)
		a.assign(name, false)
		a.arrays[name] = true
	}
	a.statement(c.Stmt, st.fork())
}

// binary analyses two statements with an operator between them.
func (a *analyzer) binary(c *syntax.BinaryCmd, st *state) {
	switch c.Op {
	case syntax.AndStmt:
		a.statement(c.X, st)
		a.statement(c.Y, st)
	case syntax.OrStmt:
		before := st.fork()
		a.statement(c.X, st)
		before.join(st)         // where X failed
		failed := before.fork() // and Y ran
		a.statement(c.Y, failed)
		st.join(failed)
	default: // pipelines
		a.statement(c.X, st.fork())
		a.statement(c.Y, st.fork()) // bash has options to run it in this shell
		if a.moves {
			st.dir = string(Hole)
		}
	}
}

// conditional analyses an if clause.
func (a *analyzer) conditional(c *syntax.IfClause, st *state) {
	a.statements(c.Cond, st)
	then := st.fork()
	a.statements(c.Then, then)
	otherwise := st.fork()
	if c.Else != nil {
		a.conditional(c.Else, otherwise)
	}
	st.join(then, otherwise)
}

// loop analyses the body of a loop.
func (a *analyzer) loop(st *state, body func(*state)) {
	if a.moves {
		st.dir = string(Hole) // that of the round before
	}
	body(st.fork())
}

// redirects analyses redirections and returns the text of standard input: nil if it is unknown.
func (a *analyzer) redirects(list []*syntax.Redirect, st *state) (stdin *string) {
	for _, r := range list {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
			variable := strings.Trim(r.N.Value, "{}")
			a.subscript(variable)
			a.assign(variable, true)
		}
		name := a.target(r, st)
		input := r.N == nil || r.N.Value == "0"
		if isConnection(name) {
			a.obscure("a connection of the shell") // if it is bash
		}
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
			a.write(name, st)
		case syntax.RdrInOut:
			a.write(name, st)
			a.read(name, st)
		case syntax.DplOut, syntax.DplIn:
			a.duplicate(r.Word, name, st)
		case syntax.RdrIn:
			if _, process := onlyPart(r.Word).(*syntax.ProcSubst); !process {
				a.read(name, st)
			}
		case syntax.WordHdoc:
			if input {
				stdin = &name
			}
			continue
		case syntax.Hdoc, syntax.DashHdoc:
			text := a.hereDocument(r.Hdoc, st)
			if input {
				if stdin = &text; hasBackslash(r.Hdoc) {
					stdin = nil
				}
			}
			continue
		default:
			a.obscure("a redirection of another shell")
		}
		reads := r.Op == syntax.RdrIn || r.Op == syntax.DplIn || r.Op == syntax.RdrInOut
		if r.N == nil && reads || r.N != nil && (input || strings.HasPrefix(r.N.Value, "{")) {
			stdin = nil
		}
	}
	return stdin
}

// target returns the word of a redirection. Shells expand braces in the name of a file.
func (a *analyzer) target(r *syntax.Redirect, st *state) string {
	switch r.Op {
	case syntax.WordHdoc, syntax.Hdoc, syntax.DashHdoc:
		return a.word(r.Word, st)
	}
	names := a.fields([]*syntax.Word{r.Word}, st)
	if len(names) != 1 {
		a.obscure("a redirection to several files")
		return string(Hole)
	}
	return names[0]
}

// duplicate analyses the word of >& and <&. A number duplicates a descriptor; other texts are
// files. Bash expands the text once more, after it has expanded the word.
func (a *analyzer) duplicate(w *syntax.Word, name string, st *state) {
	if strings.HasPrefix(name, "-") && name != "-" {
		a.obscure("a word behind >&-") // which bash takes for a word of the command
	}
	if strings.Trim(name, "0123456789-") == "" {
		return
	}
	a.write(name, st)
	switch v, number := variable(w); {
	case number:
	case syntax.ValidName(v) && strings.ContainsAny(name, holes):
		a.evaluated = append(a.evaluated, v)
	case strings.ContainsAny(name, "$`<>("+holes):
		a.obscure("a redirection that bash expands twice")
	}
}

// isConnection reports whether bash makes a connection of a redirection to a name. One that begins
// with a hole counts as the name of a file.
func isConnection(name string) bool {
	literal := name
	if i := strings.IndexAny(name, holes); i >= 0 {
		literal = name[:i]
	}
	return slices.ContainsFunc([]string{"/dev/tcp/", "/dev/udp/"}, func(dir string) bool {
		return strings.HasPrefix(literal, dir) ||
			literal != name && len(literal) > 1 && strings.HasPrefix(dir, literal)
	})
}

// hasBackslash reports whether the text of a here-document has a backslash, which may or may not be
// special.
func hasBackslash(w *syntax.Word) bool {
	return w != nil && slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool {
		lit, ok := p.(*syntax.Lit)
		return ok && strings.Contains(lit.Value, `\`)
	})
}

// devices are files that scripts write without a consequence.
var devices = []string{
	"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2",
}

// write adds a file that is written.
func (a *analyzer) write(name string, st *state) {
	if name == "" || slices.Contains(devices, name) {
		return
	}
	a.found.Writes = append(a.found.Writes, inDir(st.dir, name))
}

// sources are files that scripts read without a consequence.
var sources = []string{
	"/dev/null", "/dev/stdin", "/dev/fd/0", "/dev/tty", "/dev/zero", "/dev/random", "/dev/urandom",
}

// onlyPart returns the part of a word that has only one; else nil.
func onlyPart(w *syntax.Word) syntax.WordPart {
	if len(w.Parts) != 1 {
		return nil
	}
	return w.Parts[0]
}

// read adds a file that is read.
func (a *analyzer) read(name string, st *state) {
	if name != "" && !slices.Contains(sources, name) {
		a.found.Reads = append(a.found.Reads, inDir(st.dir, name))
	}
}

// name adds a word that may be the name of a file.
func (a *analyzer) name(word string, st *state) {
	if word != "" && !slices.Contains(devices, word) {
		a.found.Names = append(a.found.Names, inDir(st.dir, word))
	}
}
