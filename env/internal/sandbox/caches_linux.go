package sandbox

import (
	"cmp"
	"path/filepath"
	"slices"
)

// cacheVars are the variables that move caches below the directory for temporary files: the home
// directory is read-only. Each row has a variable, its path there, and the default path below the
// home directory if that differs.
var cacheVars = [][3]string{
	{"XDG_CACHE_HOME", ".cache"},
	{"GOCACHE", ".cache/go-build"},
	{"GOLANGCI_LINT_CACHE", ".cache/golangci-lint"},
	{"STATICCHECK_CACHE", ".cache/staticcheck"},
	{"npm_config_cache", ".cache/npm", ".npm"},
	{"YARN_CACHE_FOLDER", ".cache/yarn"},
	{"PIP_CACHE_DIR", ".cache/pip"},
	{"UV_CACHE_DIR", ".cache/uv"},
	{"RUFF_CACHE_DIR", ".cache/ruff"},
	{"MYPY_CACHE_DIR", ".cache/mypy"},
	{"CCACHE_DIR", ".cache/ccache"},
	{"SCCACHE_DIR", ".cache/sccache"},
	{"DENO_DIR", ".cache/deno"},
}

// sharedCaches returns the variables of the user's caches that are in writable directories.
func (p *Plan) sharedCaches(
	homes []string, getenv func(string) string, links resolver,
) (vars []string) {
	for _, c := range cacheVars {
		dir := getenv(c[0])
		if dir == "" && len(homes) > 0 {
			dir = filepath.Join(homes[0], cmp.Or(c[2], c[1]))
		}
		if !filepath.IsAbs(dir) {
			continue
		}
		if dir = links.prefix(dir); slices.ContainsFunc(
			p.Write, func(w string) bool { return Within(dir, w) },
		) {
			vars = append(vars, c[0]+"="+dir)
		}
	}
	return vars
}

// Vars returns the variables, as "NAME=value", that point programs to directories for temporary
// files and caches. The last duplicate wins.
func (p *Plan) Vars() []string { return append(TempVars(p.Temp), p.Caches...) }

// TempVars returns the variables, as "NAME=value", that point programs to a directory for temporary
// files and caches.
func TempVars(temp string) []string {
	vars := []string{"TMPDIR=" + temp, "TMP=" + temp, "TEMP=" + temp, "GOTMPDIR=" + temp}
	for _, c := range cacheVars {
		vars = append(vars, c[0]+"="+temp+"/"+c[1])
	}
	return vars
}
