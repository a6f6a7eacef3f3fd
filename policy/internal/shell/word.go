package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// fields returns the words that the shell makes of some. Only those with Split may be another
// number of words.
func (a *analyzer) fields(words []*syntax.Word, st *state) (all []string) {
	for _, w := range words {
		if !a.options.Bash {
			// A shell may expand braces or not.
			if c := *w; syntax.SplitBraces(&c) {
				a.word(w, st)
				all = append(all, string(Split))
				continue
			}
			all = append(all, a.word(w, st))
			continue
		}
		c := syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
		if !syntax.SplitBraces(&c) {
			all = append(all, a.word(w, st))
			continue
		}
		for word, err := range expand.BracesSeq(nil, &c) {
			if a.words++; err != nil || a.words > maxWords {
				a.obscure("braces that make too many words")
				return []string{string(Split)}
			}
			all = append(all, a.word(word, st))
		}
	}
	return all
}

// word returns the text of a word, with holes, and analyses the commands in it.
func (a *analyzer) word(w *syntax.Word, st *state) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for i, part := range w.Parts {
		a.part(&b, part, st, false, i == 0)
	}
	return closeGlobs(b.String())
}

// globOpen stands for an unquoted "[", which is special only before an unquoted "]", globClose.
const globOpen, globClose = '\x01', '\x02'

// closeGlobs replaces brackets by a hole if they are special, else by themselves.
func closeGlobs(text string) string {
	if !strings.ContainsAny(text, "\x01\x02") {
		return text
	}
	open, end := strings.IndexByte(text, globOpen), strings.LastIndexByte(text, globClose)
	if open >= 0 && open < end {
		hole := string(Glob)
		if strings.ContainsRune(text[open:end], Split) {
			hole = string(Split)
		}
		text = text[:open] + hole + text[end+1:]
	}
	return strings.NewReplacer("\x01", "[", "\x02", "]").Replace(text)
}

// part adds the text of a part of a word. First means that a tilde is special.
func (a *analyzer) part(b *strings.Builder, p syntax.WordPart, st *state, quoted, first bool) {
	hole := Split
	if quoted {
		hole = Hole
	}
	switch p := p.(type) {
	case *syntax.Lit:
		if quoted {
			a.quotedLiteral(b, p.Value)
		} else {
			a.literal(b, p.Value, first)
		}
	case *syntax.SglQuoted:
		text := p.Value
		if p.Dollar {
			text = unescape(text)
		}
		b.WriteString(clean(text))
	case *syntax.DblQuoted:
		if p.Dollar {
			b.WriteRune(Hole) // a translation
		}
		for _, q := range p.Parts {
			a.part(b, q, st, true, false)
		}
	case *syntax.ParamExp:
		a.parameter(p, st, quoted)
		if p.Length {
			hole = Hole // a number
		} else if p.Param != nil &&
			(p.Param.Value == "@" || p.Index != nil || p.Names != 0 || p.Slice != nil) {
			hole = Split // "$@" and "${list[@]}" may be any number of words
		} else if _, number := variable(&syntax.Word{Parts: []syntax.WordPart{p}}); number {
			hole = Hole // one word
		}
		b.WriteRune(hole)
	case *syntax.CmdSubst:
		a.statements(p.Stmts, st.fork())
		b.WriteRune(hole)
	case *syntax.ArithmExp:
		a.arithmetic(st, p.X)
		b.WriteRune(Hole) // a number
	case *syntax.ProcSubst:
		a.statements(p.Stmts, st.fork())
		b.WriteRune(Hole)
	case *syntax.ExtGlob:
		if strings.ContainsAny(p.Pattern.Value, "$`<>") {
			a.obscure("a pattern with commands")
		}
		b.WriteRune(Glob)
	case *syntax.BraceExp:
		b.WriteRune(Split)
	default:
		a.obscure("a word of another shell")
		b.WriteRune(Split)
	}
}

// escape matches the escapes in $'…' that all versions of bash agree on: those for a character of
// ASCII but NUL.
var escape = lazyregexp.New(`\\([abefnrtv\\'"?]|x[0-7][0-9a-fA-F]|[01][0-7][0-7])`)

// unescape returns the text of $'…', or a hole.
func unescape(text string) string {
	if strings.Contains(escape().ReplaceAllString(text, ""), `\`) {
		return string(Hole)
	}
	text = escape().ReplaceAllStringFunc(text, func(e string) string {
		switch e[1] {
		case 'x':
			n, _ := strconv.ParseUint(e[2:], 16, 8)
			return string(rune(n))
		case '0', '1':
			n, _ := strconv.ParseUint(e[1:], 8, 8)
			return string(rune(n))
		}
		if i := strings.IndexByte("abefnrtv", e[1]); i >= 0 {
			return "\a\b\x1b\f\n\r\t\v"[i : i+1]
		}
		return e[1:]
	})
	if strings.ContainsRune(text, 0) {
		return string(Hole)
	}
	return text
}

// clean replaces characters of a text that this package gives a meaning by holes.
func clean(text string) string {
	if !strings.ContainsAny(text, holes+"\x01\x02") {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r == globOpen || r == globClose || r == Split || r == Glob {
			return Hole
		}
		return r
	}, text)
}

// literal adds unquoted text.
func (a *analyzer) literal(b *strings.Builder, text string, first bool) {
	text = clean(text)
	if first && strings.HasPrefix(text, "~") {
		user, rest, _ := strings.Cut(text[1:], "/")
		switch {
		case user == "" && a.options.Home != "":
			b.WriteString(a.options.Home)
		default:
			b.WriteRune(Hole)
		}
		if text = ""; rest != "" {
			text = "/" + rest
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i < len(text) && text[i] != '\n' {
				b.WriteByte(text[i])
			}
		case '*', '?':
			b.WriteRune(Glob)
		case '[':
			b.WriteByte(globOpen)
		case ']':
			b.WriteByte(globClose)
		default:
			b.WriteByte(c)
		}
	}
}

// quotedLiteral adds text in double quotes.
func (a *analyzer) quotedLiteral(b *strings.Builder, text string) {
	text = clean(text)
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("$`\"\\\n", text[i+1]) >= 0 {
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
}

// hereDocument returns the text of a here-document, with holes, and analyses the commands in it.
func (a *analyzer) hereDocument(w *syntax.Word, st *state) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for _, part := range w.Parts {
		a.part(&b, part, st, true, false)
	}
	return closeGlobs(b.String())
}

// inner analyses a word in an expansion of a variable. In double quotes and here-documents shells
// take single quotes in it for themselves, which the parser does not.
func (a *analyzer) inner(w *syntax.Word, st *state, quoted bool) {
	if w == nil {
		return
	}
	var b strings.Builder
	for i, part := range w.Parts {
		if _, single := part.(*syntax.SglQuoted); single && quoted {
			a.obscure("single quotes in a quoted expansion of a variable")
		}
		a.part(&b, part, st, quoted, i == 0)
	}
}

// parameter analyses an expansion of a variable.
func (a *analyzer) parameter(p *syntax.ParamExp, st *state, quoted bool) {
	if p.Excl && p.Names == 0 || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Flags != nil {
		a.obscure("a variable that names another one")
	}
	if p.Index != nil && !isAll(p.Index) {
		a.arithmetic(st, p.Index)
	}
	if p.Slice != nil {
		a.arithmetic(st, p.Slice.Offset, p.Slice.Length)
	}
	if p.Repl != nil {
		a.inner(p.Repl.Orig, st, quoted)
		a.inner(p.Repl.With, st, quoted)
	}
	if p.Exp != nil {
		a.inner(p.Exp.Word, st, quoted)
		switch p.Exp.Op {
		case syntax.AssignUnset, syntax.AssignUnsetOrNull:
			a.assign(p.Param.Value, false)
		case syntax.OtherParamOps:
			a.obscure("an expansion of a prompt") // @P runs commands in the value
		}
	}
}

// isAll reports whether an index is "@" or "*".
func isAll(index syntax.ArithmExpr) bool {
	w, ok := index.(*syntax.Word)
	return ok && (w.Lit() == "@" || w.Lit() == "*")
}

// arithmetic analyses expressions. The shell evaluates the values of variables in them as
// expressions too, which may run commands in the subscript of an array.
func (a *analyzer) arithmetic(st *state, list ...syntax.ArithmExpr) {
	for _, x := range list {
		switch x := x.(type) {
		case nil:
		case *syntax.BinaryArithm:
			if w, ok := x.X.(*syntax.Word); ok && x.Op == syntax.Assgn && syntax.ValidName(w.Lit()) {
				a.assign(w.Lit(), true)
			} else {
				a.arithmetic(st, x.X)
			}
			a.arithmetic(st, x.Y)
		case *syntax.UnaryArithm:
			a.arithmetic(st, x.X)
		case *syntax.ParenArithm:
			a.arithmetic(st, x.X)
		case *syntax.Word:
			text := a.word(x, st)
			name, number := variable(x)
			if !number && strings.Trim(text, "0123456789") != "" {
				a.evaluated = append(a.evaluated, name)
			}
		default:
			a.obscure("an expression of another shell")
		}
	}
}

// variable returns the name of the variable that a word is the value of; empty for other words.
// number means that it is always a number, such as $# and ${#name}.
func variable(w *syntax.Word) (name string, number bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	p, ok := w.Parts[0].(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Index != nil || p.Exp != nil || p.Repl != nil || p.Slice != nil ||
		p.Excl || p.Names != 0 || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Flags != nil {
		return w.Lit(), false
	}
	return p.Param.Value, p.Length || strings.Contains("#?$!", p.Param.Value)
}

// test analyses the expression of [[ ]].
func (a *analyzer) test(x syntax.TestExpr, st *state) {
	switch x := x.(type) {
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, side := range []syntax.TestExpr{x.X, x.Y} {
				if w, ok := side.(*syntax.Word); ok {
					a.arithmetic(st, w)
				}
			}
		default:
			a.test(x.X, st)
			a.test(x.Y, st)
		}
	case *syntax.UnaryTest:
		if w, ok := x.X.(*syntax.Word); ok && (x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar) {
			a.subscript(a.word(w, st))
			return
		}
		a.test(x.X, st)
	case *syntax.ParenTest:
		a.test(x.X, st)
	case *syntax.Word:
		a.word(x, st)
	}
}

// subscript reports a name of a variable with a subscript, which may run commands.
func (a *analyzer) subscript(name string) {
	if strings.ContainsAny(name, "["+holes) {
		a.obscure("a subscript that is evaluated")
	}
}
