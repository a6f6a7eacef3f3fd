// Package controlfile lists the files of a working directory, other than those in .git, that make
// programs of the user run commands or take settings: those of git, of editors, of agents, of
// shells and of services for continuous integration.
package controlfile

import (
	"slices"
	"strings"
)

// File is a file or directory at the top of a working directory.
type File struct {
	// Name is slash-separated.
	Name string
	// Source is the documentation of the file, or the program that reads it.
	Source string
	// ReportOnly: commands may change it, since a service runs it, after a review, and no program of
	// the user does.
	ReportOnly bool
}

// All are the known files.
var All = []File{
	{Name: ".gitmodules", Source: "https://git-scm.com/docs/gitmodules"},
	{Name: ".gitattributes", Source: "https://git-scm.com/docs/gitattributes"},
	{Name: ".lfsconfig", Source: "git-lfs-config(5)"},
	{Name: ".hg/hgrc", Source: "https://www.mercurial-scm.org/doc/hgrc.5.html"},
	{Name: ".pre-commit-config.yaml", Source: "https://pre-commit.com"},
	{Name: ".husky", Source: "https://typicode.github.io/husky"},
	{Name: "lefthook.yml", Source: "https://lefthook.dev"},

	{Name: ".envrc", Source: "https://direnv.net"},
	{Name: ".mise.toml", Source: "https://mise.jdx.dev/configuration.html"},
	{Name: "mise.toml", Source: "https://mise.jdx.dev/configuration.html"},
	{Name: ".ripgreprc", Source: "ripgrep, by RIPGREP_CONFIG_PATH"},
	{Name: ".profile", Source: "sh(1)"},
	{Name: ".bashrc", Source: "bash(1)"},
	{Name: ".bash_profile", Source: "bash(1)"},
	{Name: ".bash_login", Source: "bash(1)"},
	{Name: ".bash_logout", Source: "bash(1)"},
	{Name: ".zshrc", Source: "zsh(1)"},
	{Name: ".zshenv", Source: "zsh(1)"},
	{Name: ".zprofile", Source: "zsh(1)"},
	{Name: ".zlogin", Source: "zsh(1)"},
	{Name: ".zlogout", Source: "zsh(1)"},
	{Name: ".exrc", Source: "vi(1)"},
	{Name: ".nvim.lua", Source: "nvim, with its option exrc"},
	{Name: ".vimrc", Source: "vim(1)"},
	{Name: ".gdbinit", Source: "gdb(1)"},

	{Name: ".vscode", Source: "https://code.visualstudio.com/docs/editor/workspace-trust"},
	{Name: ".idea", Source: "https://www.jetbrains.com/help/idea/project-security.html"},
	{Name: ".devcontainer", Source: "https://containers.dev/implementors/json_reference"},

	{Name: ".claude", Source: "https://code.claude.com/docs/en/settings"},
	{Name: ".codex", Source: "https://developers.openai.com/codex/config-reference"},
	{Name: ".agents", Source: "Codex CLI"},
	{Name: ".gemini", Source: "https://geminicli.com/docs/reference/configuration"},
	{Name: ".cursor", Source: "https://cursor.com/docs"},
	{Name: ".mcp.json", Source: "https://code.claude.com/docs/en/mcp"},
	{Name: ".sandboxagent", Source: "this product"},
	{Name: "sandboxagent.yaml", Source: "this product"},

	{Name: ".github/workflows", Source: "https://docs.github.com/actions", ReportOnly: true},
	{Name: ".github/actions", Source: "https://docs.github.com/actions", ReportOnly: true},
	{Name: ".gitlab-ci.yml", Source: "https://docs.gitlab.com/ci/yaml", ReportOnly: true},
	{Name: ".circleci", Source: "https://circleci.com/docs", ReportOnly: true},
	{Name: ".travis.yml", Source: "https://docs.travis-ci.com", ReportOnly: true},
	{Name: ".drone.yml", Source: "https://docs.drone.io", ReportOnly: true},
	{Name: ".woodpecker.yml", Source: "https://woodpecker-ci.org/docs", ReportOnly: true},
	{Name: ".buildkite", Source: "https://buildkite.com/docs/pipelines", ReportOnly: true},
	{Name: ".forgejo/workflows", Source: "https://forgejo.org/docs", ReportOnly: true},
	{Name: ".gitea/workflows", Source: "https://docs.gitea.com/usage/actions", ReportOnly: true},
	{Name: "azure-pipelines.yml", Source: "Azure Pipelines", ReportOnly: true},
	{Name: "bitbucket-pipelines.yml", Source: "Bitbucket Pipelines", ReportOnly: true},
	{Name: "Jenkinsfile", Source: "https://www.jenkins.io/doc/book/pipeline", ReportOnly: true},
}

// Of reports whether a name, relative to the working directory, is a control file or in one, .git
// included. A control file counts in each directory.
func Of(name string) bool {
	in := func(file string) bool { return strings.Contains("/"+name+"/", "/"+file+"/") }
	return in(".git") || slices.ContainsFunc(All, func(f File) bool { return in(f.Name) })
}
