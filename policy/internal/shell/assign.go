package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// isNumber reports whether text is a whole number.
func isNumber(text string) bool {
	return text != "" && strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") == ""
}

// assign records that the script sets a variable, to a number or to something else.
func (a *analyzer) assign(name string, number bool) {
	if number && syntax.ValidName(name) {
		a.numbers[name] = true
	} else {
		a.others[name] = true
	}
	if steers(name) {
		a.obscure("the variable " + name + ", which selects programs")
	}
	if !number && slices.Contains(integers, name) {
		a.obscure("the variable " + name + ", of which the shell evaluates the value")
	}
}

// integers are variables whose values shells evaluate as arithmetic expressions.
var integers = []string{
	"OPTIND", "RANDOM", "SRANDOM", "HISTCMD", "LINENO", "SECONDS", "EPOCHSECONDS",
}

// dynamic are variables that the shell itself sets to texts.
var dynamic = []string{
	"_", "REPLY", "OPTARG", "MAPFILE", "PWD", "OLDPWD", "DIRSTACK", "FUNCNAME", "COPROC",
	"READLINE_LINE",
}

// steering are variables that make the shell or other programs run programs, or load code. A name
// that ends with "*" stands for all that start so, and one that starts with "*" for all that end
// so.
var steering = []string{
	"PATH", "IFS", "ENV", "BASH*", "SHELLOPTS", "PROMPT_COMMAND", "PS*", "CDPATH", "FPATH",
	"POSIXLY_CORRECT",
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "MALLOC_*", "TERMINFO*", "TERMCAP",
	"GIT_*", "*PAGER", "*EDITOR", "VISUAL", "BROWSER", "SHELL", "LESS*", "MANOPT", "*ASKPASS",
	"PYTHON*", "PERL*", "RUBY*", "GEM_*", "BUNDLE_*", "NODE_*", "npm_*", "NPM_*", "LUA_*", "PHP*",
	"JAVA_*", "JDK_*",
	"_JAVA_OPTIONS", "CLASSPATH", "GOFLAGS", "GOENV", "GOTOOLCHAIN", "GOROOT", "GOPROXY", "GOAUTH",
	"CC", "CXX", "AR", "FC",
	"CGO_*", "RUSTC*", "CARGO_*", "RUSTFLAGS", "MAKEFLAGS", "MFLAGS", "MAKEFILES", "GNUMAKEFLAGS",
	"CMAKE_*",
	"TAR_OPTIONS", "TAPE", "RSYNC_*", "*_RSH", "RSH", "SSH_*", "SUDO_*", "DOCKER_*", "KUBECONFIG",
	"AWKPATH", "AWKLIBPATH", "GOCACHEPROG", "PKG_CONFIG*",
	"RIPGREP_CONFIG_PATH", "FZF_*", "GREP_OPTIONS", "*_COMMAND", "*_CMD", "HOME", "XDG_*",
	"OPENSSL_*", "CURL_HOME", "WGETRC", "SYSTEM_WGETRC", "ZIPOPT", "UNZIP*", "PYTEST_*", "GOVCS",
	"DOTNET_STARTUP_HOOKS", "DOTNET_ADDITIONAL_DEPS", "DOTNET_SHARED_STORE", "DOTNET_ROOT*",
	"CORECLR_*", "COR_PROFILER*", "COMPILER_PATH", "GCC_EXEC_PREFIX", "DEPENDENCIES_OUTPUT",
	"SUNPRO_DEPENDENCIES", "CCACHE_*", "DISTCC_*", "GNUPGHOME", "SVN_SSH", "SVN_MERGE", "HG",
	"HGRCPATH", "HGMERGE", "PARALLEL", "PARALLEL_*", "KUBECTL_EXTERNAL_DIFF", "HELM_PLUGINS",
	"HELM_DATA_HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "TF_CLI_*", "TF_DATA_DIR",
	"ANSIBLE_*", "GH_CONFIG_DIR", "GH_BROWSER", "GH_PATH", "GLAB_CONFIG_DIR", "PIP_CONFIG_FILE",
	"PIP_PYTHON", "UV_CONFIG_FILE", "UV_PYTHON", "YARN_RC_FILENAME", "YARN_YARN_PATH", "MAVEN_*",
	"GRADLE_OPTS", "GRADLE_USER_HOME", "ANT_OPTS", "ANT_ARGS", "ANT_HOME", "ERL_*", "R_PROFILE*",
	"R_ENVIRON*", "R_LIBS*", "R_HOME", "R_MAKEVARS*", "R_BROWSER", "JULIA_LOAD_PATH",
	"JULIA_DEPOT_PATH", "TCL*", "GUILE_*", "QT_*", "GTK_*",
}

// steers reports whether a variable can make a program run another one.
func steers(name string) bool {
	return slices.ContainsFunc(steering, func(s string) bool {
		if start, ok := strings.CutSuffix(s, "*"); ok {
			return strings.HasPrefix(name, start)
		}
		if end, ok := strings.CutPrefix(s, "*"); ok {
			return strings.HasSuffix(name, end)
		}
		return name == s
	})
}

// assignment analyses NAME=VALUE before a command, or alone, and returns the value.
func (a *analyzer) assignment(x *syntax.Assign, st *state) (text string) {
	number := false
	if x.Value != nil && !x.Naked {
		text = a.word(x.Value, st)
		number = isNumber(text) || isArithmetic(x.Value)
	}
	if x.Index != nil && !isAll(x.Index) {
		a.arithmetic(st, x.Index)
	}
	if x.Name != nil && (x.Index != nil || x.Array != nil) {
		a.arrays[x.Name.Value] = true
	}
	if x.Array != nil {
		for _, e := range x.Array.Elems {
			if e.Index != nil {
				a.arithmetic(st, e.Index)
			}
			a.word(e.Value, st)
		}
	}
	if x.Name != nil && !x.Naked {
		a.assign(x.Name.Value, number && x.Index == nil)
	}
	return text
}

// isArithmetic reports whether a word is an arithmetic expansion, which makes a number.
func isArithmetic(w *syntax.Word) bool {
	if len(w.Parts) != 1 {
		return false
	}
	_, ok := w.Parts[0].(*syntax.ArithmExp)
	return ok
}

// declaration analyses declare, export, local, readonly and typeset.
func (a *analyzer) declaration(d *syntax.DeclClause, st *state) {
	var words []string // the options, NAME=VALUE and NAME
	for _, x := range d.Args {
		text := a.assignment(x, st)
		switch {
		case !x.Naked:
			words = append(words, x.Name.Value+"="+text)
		case x.Name != nil:
			words = append(words, x.Name.Value)
		default:
			words = append(words, a.fields([]*syntax.Word{x.Value}, st)...)
		}
	}
	resets := d.Variant.Value != "export" && d.Variant.Value != "readonly" &&
		!slices.Contains(words, "-p")
	a.declare(words, resets)
}

// declare analyses the arguments of a declaration. With resets one without a value makes a variable
// of a function, which has none.
func (a *analyzer) declare(words []string, resets bool) {
	arrays := slices.ContainsFunc(words, func(w string) bool {
		return strings.HasPrefix(w, "-") && strings.ContainsAny(w, "aA")
	})
	for _, word := range words {
		name, value, assigns := strings.Cut(word, "=")
		name = strings.TrimSuffix(name, "+")
		switch {
		case strings.ContainsAny(name, holes+"["):
			a.obscure("a declaration that is made at run time")
		case strings.HasPrefix(word, "-") && strings.ContainsAny(word, "in"),
			strings.HasPrefix(word, "+"):
			a.obscure("a declaration that evaluates its value")
		case strings.HasPrefix(word, "-"):
		case !assigns && resets && steers(name):
			a.obscure("the variable " + name + ", which selects programs")
		case assigns && strings.HasPrefix(value, "("): // which may be in quotes
			a.obscure("a declaration that evaluates the values of an array")
		case assigns && startsWithHole(value):
			a.compound = append(a.compound, name)
		}
		if assigns {
			a.assign(name, isNumber(value))
		}
		a.arrays[name] = a.arrays[name] || arrays
	}
}
