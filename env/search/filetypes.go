package search

import (
	"maps"
	"slices"
	"strings"
)

// fileTypes are globs by file type, a selection of ripgrep's.
var fileTypes = map[string]string{
	"ada": "*.adb *.ads", "asciidoc": "*.adoc *.asc *.asciidoc", "asm": "*.asm *.s *.S",
	"awk":     "*.awk",
	"bazel":   "*.bazel *.bzl *.BUILD *.bazelrc BUILD MODULE.bazel WORKSPACE WORKSPACE.bazel",
	"bitbake": "*.bb *.bbappend *.bbclass *.conf *.inc",
	"c":       "*.c *.h *.H *.cats *.[chH].in", "cabal": "*.cabal",
	"clojure":      "*.clj *.cljc *.cljs *.cljx",
	"cmake":        "*.cmake CMakeLists.txt",
	"coffeescript": "*.coffee", "config": "*.cfg *.conf *.config *.ini",
	"cpp": "*.cpp *.cc *.cxx *.C *.c++ *.hpp *.hh *.hxx *.h++ *.H *.h *.inl *.[ChH].in " +
		"*.[ch]pp.in *.[ch]xx.in *.cc.in *.hh.in",
	"crystal": "*.cr *.ecr Projectfile shard.yml", "cs": "*.cs", "csproj": "*.csproj",
	"css": "*.css *.scss", "csv": "*.csv",
	"cuda": "*.cu *.cuh", "cython": "*.pyx *.pxi *.pxd", "d": "*.d", "dart": "*.dart",
	"diff":   "*.patch *.diff",
	"docker": "*Dockerfile*", "dockercompose": "docker-compose.yml docker-compose.*.yml",
	"dts":   "*.dts *.dtsi",
	"elisp": "*.el", "elixir": "*.ex *.eex *.exs *.heex *.leex *.livemd", "elm": "*.elm",
	"erb": "*.erb", "erlang": "*.erl *.hrl",
	"fish": "*.fish", "flatbuffers": "*.fbs", "fortran": "*.f *.F *.f77 *.F77 *.pfo *.f90 *.F90 " +
		"*.f95 *.F95", "fsharp": "*.fs *.fsx *.fsi",
	"gn": "*.gn *.gni", "go": "*.go", "gradle": "*.gradle *.gradle.kts gradle.properties " +
		"gradle-wrapper.* gradlew gradlew.bat",
	"graphql": "*.graphql *.graphqls", "groovy": "*.groovy *.gradle", "h": "*.h *.hh *.hpp",
	"haml": "*.haml", "hare": "*.ha",
	"haskell": "*.hs *.lhs *.cpphs *.c2hs *.hsc", "hbs": "*.hbs", "hs": "*.hs *.lhs",
	"html": "*.htm *.html *.ejs", "idris": "*.idr *.lidr",
	"java": "*.java *.jsp *.jspx *.properties", "jinja": "*.j2 *.jinja *.jinja2", "jl": "*.jl",
	"js":   "*.js *.jsx *.vue *.cjs *.mjs",
	"json": "*.json composer.lock *.sarif", "jsonl": "*.jsonl", "julia": "*.jl",
	"jupyter": "*.ipynb *.jpynb", "k": "*.k",
	"kotlin": "*.kt *.kts", "lean": "*.lean", "less": "*.less",
	"license": "COPYING COPYING[.-]* COPYRIGHT COPYRIGHT[.-]* EULA EULA[.-]* LICEN[CS]E " +
		"LICEN[CS]E[.-]* NOTICE NOTICE[.-]* PATENTS PATENTS[.-]*",
	"lisp": "*.el *.jl *.lisp *.lsp *.sc *.scm", "lock": "*.lock package-lock.json", "log": "*.log",
	"lua": "*.lua", "m4": "*.ac *.m4",
	"make": "[Gg][Nn][Uu]makefile [Mm]akefile [Mm]akefile.am [Mm]akefile.in " +
		"[Gg][Nn][Uu]makefile.am [Gg][Nn][Uu]makefile.in Makefile.* *.mk *.mak",
	"man":      "*.[0-9lnpx] *.[0-9][cEFMmpSx]",
	"markdown": "*.markdown *.md *.mdown *.mdwn *.mkd *.mkdn *.mdx", "matlab": "*.m",
	"md":    "*.markdown *.md *.mdown *.mdwn *.mkd *.mkdn *.mdx",
	"meson": "meson.build meson_options.txt meson.options", "mk": "mkfile", "ml": "*.ml",
	"msbuild": "*.csproj *.fsproj *.vcxproj *.proj *.props *.targets *.sln",
	"nim":     "*.nim *.nimf *.nimble *.nims", "nix": "*.nix", "objc": "*.h *.m", "objcpp": "*.h *.mm",
	"ocaml": "*.ml *.mli *.mll *.mly", "org": "*.org *.org_archive",
	"pascal": "*.pas *.dpr *.lpr *.pp *.inc", "pdf": "*.pdf",
	"perl": "*.perl *.pl *.PL *.plh *.plx *.pm *.t",
	"php":  "*.php *.php3 *.php4 *.php5 *.php7 *.php8 *.pht *.phtml",
	"po":   "*.po", "postscript": "*.eps *.ps", "prolog": "*.pl *.pro *.prolog *.P",
	"protobuf": "*.proto", "ps": "*.cdxml *.ps1 *.ps1xml *.psd1 *.psm1",
	"puppet": "*.epp *.erb *.pp *.rb", "purs": "*.purs", "py": "*.py *.pyi", "python": "*.py *.pyi",
	"qml": "*.qml",
	"r":   "*.R *.r *.Rmd *.Rnw *.rmd", "racket": "*.rkt",
	"raku": "*.raku *.rakumod *.rakudoc *.rakutest *.p6 *.pl6 *.pm6", "rdoc": "*.rdoc",
	"readme": "README* *README", "rst": "*.rst",
	"ruby": "*.gemspec *.rb .irbrc Gemfile Rakefile config.ru *.rake *.rbw", "rust": "*.rs",
	"sass": "*.sass *.scss", "scala": "*.scala *.sbt",
	"sh": "*.bash *.bashrc *.csh *.cshrc *.ksh *.kshrc *.sh *.tcsh *.zsh .bash_login .bash_logout " +
		".bash_profile .bashrc .cshrc .kshrc .login .logout .profile .tcshrc .zlogin .zlogout " +
		".zprofile .zshenv .zshrc bash_login bash_logout bash_profile bashrc profile zlogin zlogout " +
		"zprofile zshenv zshrc",
	"slim": "*.skim *.slim *.slime", "smarty": "*.tpl", "sml": "*.sml *.sig", "solidity": "*.sol",
	"soy": "*.soy", "sql": "*.sql *.psql", "stylus": "*.styl",
	"sv": "*.v *.vg *.sv *.svh *.h", "svelte": "*.svelte", "svg": "*.svg", "swift": "*.swift",
	"swig": "*.def *.i", "systemd": "*.automount *.conf *.device *.link *.mount *.path *.scope " +
		"*.service *.slice *.socket *.swap *.target *.timer",
	"tcl": "*.tcl", "tex": "*.tex *.ltx *.cls *.sty *.bib *.dtx *.ins",
	"tf":     "*.tf *.tf.json *.tfvars *.tfvars.json *.terraform.lock.hcl terraform.rc .terraformrc",
	"thrift": "*.thrift", "toml": "*.toml Cargo.lock", "ts": "*.ts *.tsx *.cts *.mts",
	"twig": "*.twig *.html.twig", "txt": "*.txt", "typescript": "*.ts *.tsx *.cts *.mts",
	"typoscript": "*.typoscript *.ts",
	"vala":       "*.vala", "vb": "*.vb", "verilog": "*.v *.vh *.sv *.svh", "vhdl": "*.vhd *.vhdl",
	"vim": "*.vim .vimrc .gvimrc vimrc gvimrc _vimrc _gvimrc", "vue": "*.vue",
	"wgsl": "*.wgsl", "xml": "*.xml *.xml.dist *.dtd *.xsl *.xslt *.xsd *.xjb *.rng *.sch *.xhtml",
	"xz": "*.xz *.txz", "yaml": "*.yaml *.yml", "zig": "*.zig",
	"zsh": ".zshenv zshenv .zlogin zlogin .zlogout zlogout .zprofile zprofile .zshrc zshrc *.zsh",
}

// FileTypes returns the sorted names that GrepOptions.Types accepts.
func FileTypes() []string { return slices.Sorted(maps.Keys(fileTypes)) }

// typeGlobs returns the globs of a file type.
func typeGlobs(name string) []string { return strings.Fields(fileTypes[name]) }
