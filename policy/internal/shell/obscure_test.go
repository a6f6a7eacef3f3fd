package shell

import "testing"

// TestObscure has scripts that run a program which no reader of their text sees, or that may, and
// others like them that do not.
func TestObscure(t *testing.T) {
	for _, script := range []string{
		// what bash reads differently from the parser
		"a \\\r\nrm x", "a \r#; rm x",
		`echo "${x:-'$(rm x)'}"`, "cat <<E\n${x:-'$(rm x)'}\nE", `echo "${x:-'}" "$(rm x)" "'}"`,
		`echo "${x:-${y:-'$(rm x)'}}"`, `echo "${x/a/'$(rm x)'}"`,
		// values that bash evaluates
		`OPTIND='a[$(rm x)]'`, `read OPTIND`, `for OPTIND in 'a[$(rm x)]'; do :; done`,
		`printf -v RANDOM %s "$x"`, `SECONDS=$x`,
		`declare -a x='($(rm x))'`, `local -A x='($(rm x))'`, `command readonly -a 'x=($(rm x))'`,
		`declare -a x="$y"`, `x=(); declare x="$y"`, `declare x="$y"; read -ra x`,
		`y=v; [ "-$y" 'a[$(rm x)]' ]`, `x='-v a[$(rm${IFS}x)]'; [ $x ]`,
		`b='x[$(rm x)]'; : {a[b]}>/dev/null`,
		`sleep 1 & wait -np 'a[$(rm x)]'`, `wait -np PATH; a`,
		`x=1; read -ax <<<'a[$(rm x)]'; echo $((x))`,
		`x[0]=1; declare x="$y"`, `mapfile x; declare x="$y"`, `declare MAPFILE="$y"`,
		// variables that select programs
		`export {LD_PRELOAD,x}=./e.so; a`, `declare {PATH,x}=.; a`, `f() { local PATH; a; }; f`,
		// scripts that run later
		`x='rm${IFS}x EXIT'; trap $x`, `set -- 'rm x' EXIT; trap "$@"`, `trap 'cd d' DEBUG; a >x`,
		"gcc -wrapper rm,x a.c", "install -s --strip-program=rm a b", "go doc -http x",
		"WGETRC=x wget y", "gosu x rm y | prlimit -n rm x",
		// operators of find
		`find . -maxdepth 0 ! -fstype -fprint -exec rm x ';'`,
		// scripts of sed with brackets in brackets
		`sed 's/[[:space:]/]*$/ #/e'`, `sed 's/[[.a.]/]/ #/w x'`, `sed 's/[[=a=]/]/ #/e'`,
		`sed 's/[]/]/ #/e'`, `sed 's/[^]/]/ #/e'`, `sed 's/[[:/]/ #/e'`, `sed 's/[\]/]/ #/e'`,
		// programs that read a script, or another command, from standard input
		"echo 'rm x' | unshare", "echo 'rm x' | sudo -s", "sudo -i", "chroot /", "fakeroot",
		"parallel -- ls 'rm x'",
		// editors
		"git commit", "git commit -a", "git commit --amend", "git commit -e -m x", "git commit -m x -e",
		"git commit -c HEAD", "git commit -Sm", "git commit --author -m", "git commit --auth -m",
		"git commit -- -m", "git commit -t -m", "git commit --fixup=amend:HEAD", "git commit -p -m x",
		"git commit --fixup amend:HEAD", "git tag -a v1", "git tag -s v1", "git tag --ann v1",
		"git tag -e v1",
		"git commit -oe f -m x", "git commit -ip -m x", "git commit --fixup", "git cherry-pick -xe x",
		"git stash push -kp", "git am -i x", "git pull -e", "git tag -u -m v1",
		"git pull --rebase=interactive", "git pull -ri", "git -c pull.rebase=interactive pull",
		"git tag -a --no-edit v1", "git tag -a -n-1 v2", "git revert --no-edit -e HEAD",
		"git revert -n --commit -e HEAD", "git commit -m x --no-message", "git commit -m x --no-file",
		"git commit -C HEAD --no-reuse-message", "git commit --fixup=HEAD --no-fixup",
		"git commit --dry-run --no-dry-run", "git tag -a -F f --no-file v1",
		"git commit --fixup=HEAD --fixup=amend:HEAD", "git commit --fixup=HEAD --fix=amend:HEAD",
		"git commit --end-of-options f -m", "git am -3i p", "git cherry-pick -re x", "git restore -Sp f",
		"git stash -Sp", "git checkout -2p f", "git notes add -m x -c b", "git notes edit",
		"git notes add -m x --reedit-message=b", "git replace -e HEAD", "git bugreport",
		"git tag --trailer a:b v1", "git rebase --autosquash main", "ANSIBLE_LIBRARY=. a",
		"git add -e", "git add -p", "git add -Ai", "git stash -p", "git reset -p", "git notes add",
		"git branch --edit-description", "git rebase --continue", "git rebase --cont", "git revert HEAD",
		"git cherry-pick -e x",
		// variables
		"GNUPGHOME=$PWD/e git log --show-signature", "COMPILER_PATH=. go vet", "SVN_SSH=a svn up",
		`find . ! -fstype -exec -exec rm x ';'`, `find . -fstype -exec -delete -o -name ';'`,
	} {
		for _, bash := range []bool{true, false} {
			if s := Analyze(script, Options{Bash: bash}); len(s.Obscure) == 0 {
				t.Errorf("%q is understood, bash %t: %v", script, bash, s.Commands)
			}
		}
	}
	for _, script := range []string{
		`sed 's/[[:space:]]*$//'`, `sed 's/[^]a]/x/'`, `sed 's/[[:alpha:][:digit:]_]*/x/g'`,
		"git tag --list", "git tag -l 'v*'", "git tag --sort=-v:refname", "git tag -d v1",
		"git commit -m x", "git commit -am x", "git commit -a --amend --no-edit", "git commit -qm x",
		"git commit --message=x", "git commit --file=x", "git stash show -p",
		"git stash show --patch", "git commit -u -m x",
		"git commit --gpg-sign -m x", "git commit --squash=x -m y", "git tag -n5 -l",
		"git checkout -b pipe", "git restore -s p f", "git am -3 p", "git pull --rebase",
		"git pull -r", "git pull --rebase=merges", "git notes --ref=x append -m y",
		"git commit -F x", "git commit -C HEAD",
		"git commit -S -m x", "git commit --no-gpg-sign -m x", "git commit --no-verify -m x",
		"git commit --fixup HEAD", "git revert -n HEAD", "git tag -u key -m x v1",
		`sed -i 's/[ \t]*$//' f`, `sed 's/[^0-9\.]//g'`, "./script build", "bin/open x", "AWS_REGION=x a",
		"while read -r f; do a; done < <(git ls-files)",
		"git commit --fixup=HEAD", "git commit --allow-empty -m x", "git tag v1", "git tag -am x v1",
		"git tag -a v1 -m x", "git add -A", "git add .", "git notes add -m x",
		"git revert --no-edit HEAD",
		"git stash", "git merge x", "git pull", "git rebase main", "git checkout -b x", "git log -p",
		"git branch -d x", "git commit -s -m x", "git notes list", "parallel ls ::: a",
		`[ $# -gt 0 ] && [ $? = 0 ]`, `[ "$x" = y ] && [ -n "$x" ]`, `f() { local x="$1"; }; f`,
		`y=(1 2); x=$y`, `trap 'rm x' EXIT`, `export A=b B="$x"`, `x=1; read -r y; echo $((x))`,
		`echo "${x:-a}" ${x:-'a'}`, "cat <<E\n${x:-a}\nE", `wait -n`, `OPTIND=1`,
		`find . -exec rm -f {} +`, `a >"$x"`, `watch 'a; b'`, `f() { local d="$1"; }; y=(1 2)`,
		`[ ${#y[@]} -gt 0 ]`, `i=1; [ $((i % 2)) -eq 0 ]`, `[ -e dist/*.whl ]`, `[ -f $f ]`,
		`i=0; while [ $i -lt 10 ]; do a; i=$((i+1)); done`, `export PATH; declare -p PATH`,
		`gcc *.c -o a`, `cc $CFLAGS -c x.c`, `install -m 755 --strip $x /usr/bin`,
		`trap 'cd /' EXIT`, `LINES=$(wc -l <x) a`, `readonly ROOT="$(pwd)"; x=(1)`,
	} {
		if s := Analyze(script, Options{Bash: true}); len(s.Obscure) > 0 {
			t.Errorf("%q is not understood: %q", script, s.Obscure)
		}
	}
}

// TestNestedDeclarations has declarations in declarations, each of which is read once.
func TestNestedDeclarations(t *testing.T) {
	script := "rm x"
	for range 30 {
		script = "export a=$(" + script + ")"
	}
	if s := Analyze(script, Options{Bash: true}); len(s.Commands) > 1 {
		t.Errorf("%d commands", len(s.Commands))
	}
}
