package sandbox

// namedInHome are the files and directories of a home directory that stay readable: programs that
// builds start, what they share between projects, and settings that builds need. All else is
// hidden. The paths are the defaults that the documentation of each program names.
//
// Caches are only read: the variables of cacheVars point programs to others.
var namedInHome = []struct {
	reason string
	names  []string
}{
	{"programs that users install for themselves, as in file-hierarchy(7)", []string{
		".local/bin", ".local/lib", ".local/include",
	}},
	{"git: names, aliases and ignored files; its passwords are in other files", []string{
		".gitconfig", ".gitignore", ".gitignore_global", ".gitattributes", ".config/git",
	}},
	{"fonts and terminals, for programs that draw", []string{
		".fonts", ".local/share/fonts", ".config/fontconfig", ".terminfo",
	}},
	{"Go: GOPATH, toolchains of golang.org/dl, go env", []string{
		"go", "sdk", ".config/go", ".cache/go-build", ".cache/golangci-lint", ".cache/goimports",
		".cache/staticcheck", ".gvm", ".goenv",
	}},
	{"Rust: CARGO_HOME, RUSTUP_HOME, sccache", []string{".cargo", ".rustup", ".cache/sccache"}},
	{"Node.js: version managers, package managers, browsers of tests", []string{
		".nvm", ".fnm", ".local/share/fnm", ".volta", ".n", ".npm", ".npm-global", ".npm-packages",
		".node-gyp", ".cache/node-gyp", ".cache/node", ".yarn", ".cache/yarn", ".config/yarn/global",
		".pnpm-store", ".local/share/pnpm", ".cache/pnpm", ".bun", ".deno", ".cache/deno",
		".cache/ms-playwright", ".cache/puppeteer", ".cache/Cypress", ".cache/electron",
		".cache/electron-builder", ".cache/prisma",
	}},
	{"Python: version managers, virtual environments, package managers, indexes", []string{
		".pyenv", ".cache/pip", ".config/pip", ".pip", ".cache/uv", ".config/uv", ".local/share/uv",
		".local/share/virtualenv", ".local/share/virtualenvs", ".virtualenvs", ".cache/pypoetry",
		".local/share/pypoetry", ".local/share/pipx", ".local/pipx", ".local/share/hatch",
		".cache/pre-commit", ".cache/ruff", ".rye", ".pixi", ".cache/rattler", ".conda", ".mamba",
		"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".local/share/mamba",
	}},
	{"Java, Kotlin, Scala: JDKs, repositories of packages, settings without passwords", []string{
		".sdkman", ".jdks", ".jenv", ".jbang", ".m2", ".gradle", ".ivy2", ".sbt", ".cache/coursier",
		".local/share/coursier", ".konan", ".groovy/grapes",
	}},
	{"C and C++: caches of compilers and packages", []string{
		".ccache", ".cache/ccache", ".config/ccache", ".conan2", ".conan", ".vcpkg", ".cache/vcpkg",
		".cmake", ".cache/bazel", ".cache/bazelisk", ".xmake", ".platformio", ".espressif",
	}},
	{"Ruby and PHP", []string{
		".rbenv", ".rvm", ".gem", ".local/share/gem", ".bundle", ".composer", ".config/composer",
		".cache/composer", ".phpenv",
	}},
	{".NET", []string{".dotnet", ".nuget/packages", ".local/share/NuGet"}},
	{"Haskell, OCaml, Lean, Julia, Elixir, Dart, Perl, Lua, Nim, Swift, Zig, LaTeX, Android", []string{
		".ghcup", ".stack", ".cabal", ".local/state/cabal", ".cache/cabal", ".opam", ".elan", ".juliaup",
		".julia", ".mix", ".hex", ".cache/rebar3", ".pub-cache", "perl5", ".plenv", ".luarocks",
		".nimble", ".choosenim", ".local/share/swiftly", ".swiftpm", ".cache/zig", "texmf",
		"Android/Sdk",
	}},
	{"version managers of several languages", []string{
		".asdf", ".asdfrc", ".tool-versions", ".local/share/mise", ".config/mise", ".local/state/mise",
		".local/share/rtx", ".proto", ".nix-profile", ".nix-defexpr", ".local/state/nix",
		".linuxbrew",
	}},
}

// secretsInNamed are the secrets in directories of namedInHome that inHome does not have.
var secretsInNamed = []string{
	".bundle/config", ".conan/.conan.db", ".conan2/.conan.db", ".conan2/credentials.json",
	".dotnet/corefx", ".ivy2/.credentials", ".local/share/gem/credentials",
	".platformio/appstate.json", ".rye/credentials", ".stack/upload", ".sbt/.credentials",
	".sbt/credentials", ".sbt/0.13/credentials.sbt", ".sbt/1.0/credentials.sbt", ".julia/servers",
	".julia/logs", ".local/share/uv/credentials", ".luarocks/upload_config.lua",
	".nimble/github_api_token", ".pub-cache/credentials.json", ".gradle/develocity",
	".gradle/enterprise", ".m2/.develocity", ".m2/.gradle-enterprise",
}

// namingVariables are variables whose values are paths, or lists of them, of such directories.
var namingVariables = []string{
	"GOPATH", "GOROOT", "GOMODCACHE", "GOCACHE", "GOBIN", "GOENV",
	"CARGO_HOME", "RUSTUP_HOME", "SCCACHE_DIR",
	"NVM_DIR", "FNM_DIR", "VOLTA_HOME", "N_PREFIX", "PNPM_HOME", "BUN_INSTALL",
	"DENO_DIR", "DENO_INSTALL", "NODE_PATH", "npm_config_cache", "NPM_CONFIG_CACHE",
	"NPM_CONFIG_PREFIX", "YARN_CACHE_FOLDER", "PLAYWRIGHT_BROWSERS_PATH", "PUPPETEER_CACHE_DIR",
	"CYPRESS_CACHE_FOLDER", "ELECTRON_CACHE",
	"PYENV_ROOT", "VIRTUAL_ENV", "WORKON_HOME", "CONDA_PREFIX", "CONDA_EXE", "MAMBA_ROOT_PREFIX",
	"PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PIPX_HOME", "PIP_CACHE_DIR", "PIP_FIND_LINKS",
	"POETRY_HOME", "POETRY_CACHE_DIR", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR",
	"PRE_COMMIT_HOME",
	"JAVA_HOME", "JDK_HOME", "M2_HOME", "MAVEN_HOME", "GRADLE_HOME", "GRADLE_USER_HOME", "SDKMAN_DIR",
	"COURSIER_CACHE", "KOTLIN_HOME", "SCALA_HOME", "ANT_HOME",
	"CCACHE_DIR", "VCPKG_ROOT", "CONAN_HOME", "CONAN_USER_HOME", "CMAKE_PREFIX_PATH",
	"PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "EMSDK",
	"RBENV_ROOT", "GEM_HOME", "GEM_PATH", "BUNDLE_PATH", "RUBYLIB", "COMPOSER_HOME", "PERL5LIB",
	"DOTNET_ROOT", "NUGET_PACKAGES", "OPAMROOT", "OPAM_SWITCH_PREFIX", "STACK_ROOT", "CABAL_DIR",
	"ELAN_HOME", "JULIA_DEPOT_PATH", "MIX_HOME", "HEX_HOME", "PUB_CACHE", "FLUTTER_ROOT",
	"ANDROID_HOME", "ANDROID_SDK_ROOT", "ANDROID_NDK_HOME",
	"ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "PROTO_HOME", "HOMEBREW_PREFIX",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
	"GIT_SSL_CAINFO", "PIP_CERT", "GIT_CONFIG_GLOBAL",
}
