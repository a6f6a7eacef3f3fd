package confine

// caches are variables that tell programs where to keep what can be made again, below the folder for temporary files: what
// is kept at home cannot be changed.
var caches = [][2]string{
	{"XDG_CACHE_HOME", ".cache"},
	{"GOCACHE", ".cache/go-build"},
	{"GOLANGCI_LINT_CACHE", ".cache/golangci-lint"},
	{"STATICCHECK_CACHE", ".cache/staticcheck"},
	{"npm_config_cache", ".cache/npm"},
	{"YARN_CACHE_FOLDER", ".cache/yarn"},
	{"PIP_CACHE_DIR", ".cache/pip"},
	{"UV_CACHE_DIR", ".cache/uv"},
	{"RUFF_CACHE_DIR", ".cache/ruff"},
	{"MYPY_CACHE_DIR", ".cache/mypy"},
	{"CCACHE_DIR", ".cache/ccache"},
	{"SCCACHE_DIR", ".cache/sccache"},
	{"DENO_DIR", ".cache/deno"},
}

// Vars are the variables with which programs find a place for temporary files and caches, as "NAME=value".
func (p *Plan) Vars() []string {
	vars := []string{"TMPDIR=" + p.Temp, "TMP=" + p.Temp, "TEMP=" + p.Temp, "GOTMPDIR=" + p.Temp}
	for _, c := range caches {
		vars = append(vars, c[0]+"="+p.Temp+"/"+c[1])
	}
	return vars
}
