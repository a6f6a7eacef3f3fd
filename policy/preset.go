package policy

import (
	"slices"
	"strings"
)

// looking are commands that only read, whatever their arguments: the analysis of commands finds
// options that write or run programs.
const looking = `cat *|ls *|head *|tail *|wc *|nl *|cut *|tr *|uniq|uniq -c|sort *|grep *|egrep *|
fgrep *|rg *|diff *|cmp *|comm *|file *|stat *|du *|df *|find *|fd *|tree *|basename *|dirname *|
realpath *|readlink *|which *|whoami|id *|uname *|hostname|date|sha256sum *|md5sum *|strings *|od *|
hexdump *|jq *|sed *|awk *|column *|expr *|seq *|sleep *|git status *|git log *|git diff *|
git show *|git blame *|git grep *|git ls-files *|git ls-tree *|git rev-parse *|git rev-list *|
git describe *|git shortlog *|git cat-file *|git merge-base *|git branch|git branch -a|
git branch -v|git branch -vv|git branch --show-current|git tag|git tag -l *|git remote|
git remote -v|go version|
go list *|go doc *|go vet *|node --version|python3 --version`

// Presets returns the names of the built-in policies.
func Presets() []string { return []string{"read-only", "workspace-write", "ci", "full"} }

// Preset returns a built-in policy, or nil for an unknown name:
//
//	read-only        reads, searches, and commands that only read; denies everything else
//	workspace-write  that, and writes in the working directory; asks about everything else
//	ci               everything but pushes and other rights; asks about what may be one of these
//	full             everything
func Preset(name string) *Policy {
	rule := func(action Action, permission, pattern string) Rule {
		return Rule{permission, pattern, action, "the preset " + name}
	}
	reads := []Rule{
		rule(Allow, ClassRead, "*"), rule(Allow, ClassSearch, "*"), rule(Allow, ClassHuman, "*"),
		rule(Allow, ClassAgent, "*"),
	}
	for command := range strings.SplitSeq(strings.ReplaceAll(looking, "\n", ""), "|") {
		reads = append(reads, rule(Allow, ClassShell, command))
	}
	switch name {
	case "read-only":
		return &Policy{Rules: reads, Default: Deny}
	case "workspace-write":
		return &Policy{Rules: slices.Concat([]Rule{
			rule(Deny, ClassWrite, ".git/**"), rule(Deny, ClassWrite, "**/.git/**"),
			rule(Ask, ClassWrite, "**/HEAD"), // of a bare repository, whose settings git would obey
			rule(Allow, ClassWrite, "**"),
		}, reads), Default: Ask}
	case "ci":
		return &Policy{Rules: []Rule{
			rule(Deny, ClassShell, "git push *"), rule(Deny, ClassShell, "git send-pack *"),
			rule(Deny, ClassShell, "git http-push *"), rule(Deny, ClassShell, "git subtree *push*"),
			rule(Deny, ClassShell, "sudo *"),
			rule(Deny, ClassShell, "doas *"), rule(Deny, ClassShell, "su *"), rule(Allow, "*", "*"),
		}, Default: Deny}
	case "full":
		return &Policy{Rules: []Rule{rule(Allow, "*", "*")}, Default: Allow}
	}
	return nil
}
