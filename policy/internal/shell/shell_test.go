package shell

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// cases are scripts with the programs that they run, in any order, and "?" if a part is not
// understood.
var cases = []struct{ script, programs string }{
	// lists, pipelines, groups
	{"", ""},
	{"ls", "ls"},
	{"a; b & c && d || e | f |& g", "a b c d e f g"},
	{"! a", "a"},
	{"(a; b) && { c; }", "a b c"},
	{"time a", "a"},
	{"a\nb\n\nc", "a b c"},
	{"# rm\na # rm", "a"},
	{"if a; then b; elif c; then d; else e; fi", "a b c d e"},
	{"while a; do b; break; done; until c; do d; done", "a b c d"},
	{"for f in 1 2; do a; done", "a"},
	{"for ((i=0; i<2; i++)); do a; done", "a"},
	{"select x in 1; do a; break; done", "a"},
	{"case x in x) a;; y) b;; esac", "a b"},
	{"case $(a) in $(b)) c;; esac", "a b c"},
	{"coproc a; wait", "a"},
	{"f() { a; }; f; g", "a g"},
	{"f() { a; }; f; unset -f f; f", "a ?"},
	{"function f { a; }; f", "a"},
	{"(f() { a; }); f", "a f"},
	{"true || f() { a; }; f", "a f"},
	{"[[ -f x && $(a) == b ]] && c", "a c"},
	{"[ -f x ] && a", "a"},
	{"a <<E\n$(b)\nE", "a b"},
	{"a <<'E'\n$(b)\nE", "a"},
	{"a <<< $(b)", "a b"},
	{"a <(b) >(c)", "a b c"},
	{"a > $(b)", "a b"},
	{"x=$(a) b", "a b"},
	{"x=`a`; y=(1 $(b)); echo ${y[@]}", "a b"},
	{"echo \"$(a \"$(b)\")\"", "a b"},
	{"echo ${x:-$(a)} ${x/$(b)/c} ${#x}", "a b"},
	{"echo $(( $(a) ))", "a ?"},
	{"set -- 1 2; shift; echo $#", ""},
	{"trap 'a' EXIT", "a"},
	{"trap \"$x\" EXIT", "?"},
	{"trap - INT", ""},

	// quoting
	{"'r'm x", "rm"},
	{"r\\m x", "rm"},
	{"r\"\"m x", "rm"},
	{"$'\\x72m' x", "rm"},
	{"$'\\162\\155' x", "rm"},
	{"r\\\nm x", "rm"},
	{"\"r\\\nm\" x", "rm"},
	{"/bin/rm x", "rm"},
	{"/usr/../bin/rm x", "rm"},
	{"./rm x", "./rm"},
	{"\\rm x", "rm"},
	{"{rm,x}", "rm"},
	{"{r,}m", "rm"},
	{"r{m,}", "rm"},
	{"rm{,}", "rm"},
	{"'{rm,x}'", "{rm,x}"},
	{"\"a b\" c", "a b"},
	{"rm", "rm"},
	{"ｒm x", "ｒm"},
	{"$x y", "… ?"},
	{"$(a) y", "a … ?"},
	{"r$x y", "r… ?"},
	{"/bin/r? x", "r… ?"},
	{"/bin/[r]m x", "…m ?"},
	{"~/x y", "…x ?"},
	{"$1", "… ?"},
	{"\"$@\"", "… ?"},
	{"${x}rm", "…rm ?"},
	{"IFS=,; x=rm,y; $x", "… ?"},
	{"${!x}", "… ?"},
	{"echo ${x@P}", "?"},

	// variables that select programs
	{"PATH=. ls", "ls ?"},
	{"PATH=.; ls", "ls ?"},
	{"export PATH=.; ls", "ls ?"},
	{"declare PATH=.; ls", "ls ?"},
	{"LD_PRELOAD=./x ls", "ls ?"},
	{"BASH_ENV=x bash -c a", "a ?"},
	{"GIT_SSH_COMMAND=x git fetch", "git ?"},
	{"PAGER=x man y", "man ?"},
	{"for PATH in .; do ls; done", "ls ?"},
	{"read PATH; ls", "ls ?"},
	{"printf -v PATH .; ls", "ls ?"},
	{": ${PATH:=x}", "?"},
	{"env PATH=. ls", "ls ?"},
	{"FOO=1 ls", "ls"},
	{"declare 'PATH=.'; ls", "ls ?"},
	{"export \"PATH=$x\"; ls", "ls ?"},
	{"mapfile PATH; ls", "ls ?"},
	{"wait -p PATH; ls", "ls ?"},
	{"coproc PATH { a; }; ls", "a ls ?"},
	{"exec {PATH}>x; ls", "ls ?"},
	{"set -k; ls PATH=.", "ls ?"},
	{"bash -kc ls", "bash ?"},
	{"exec 3<>/dev/tcp/127.0.0.1/1", "?"},
	{"cat </dev/tcp/127.0.0.1/1", "cat ?"},
	{"$'rm\\0x' y", "… ?"},
	{"$'\\u0072m' x", "… ?"},
	{"$'\\xffrm' x", "… ?"},
	{"$'\\tr\\'m' x", "\tr'm"},
	{"!(rm x)", "… ?"},
	{"file -C -m x", "file ?"},

	// values that are evaluated
	{"i=0; i=$((i+1)); a", "a"},
	{"i=x; echo $((i))", "?"},
	{"echo $((x))", "?"},
	{"echo $((1+2))", ""},
	{"x='a[$(rm)]'; ((x))", "?"},
	{"let x=1", ""},
	{"let \"x=a[\\$(rm)]\"", "?"},
	{"[[ $x -eq 1 ]]", "?"},
	{"[[ 1 -eq 1 ]]", ""},
	{"[[ -v 'a[$(rm)]' ]]", "?"},
	{"test -v 'a[$(rm)]'", "?"},
	{"[ -v \"$x\" ]", "?"},
	{"echo ${a[x]}", "?"},
	{"echo ${a[1]} ${a[@]}", ""},
	{"echo ${a:x}", "?"},
	{"echo ${a:1:2}", ""},
	{"declare -i x=y", "?"},
	{"declare -n x=y", "?"},
	{"declare -a x=(1 2)", ""},
	{"a[$(b)]=1", "b ?"},
	{"unset 'a[$(rm)]'", "?"},
	{"read 'a[$(rm)]'", "?"},
	{"printf -v 'a[$(rm)]' x", "?"},
	{"printf %s x", ""},
	{"mapfile -C rm x", "?"},

	// commands that run their arguments
	{"eval rm x", "rm"},
	{"eval 'rm x; ls'", "rm ls"},
	{"eval \"$x\"", "?"},
	{"eval eval rm x", "rm"},
	{"command rm x", "rm"},
	{"command -v rm", ""},
	{"command -p rm x", "rm"},
	{"f() { :; }; command f", "f"},
	{"builtin eval rm x", "rm"},
	{"builtin cd x", ""},
	{"exec rm x", "rm"},
	{"exec >x", ""},
	{"exec -a b rm x", "exec ?"},
	{"source x", "source"},
	{". x", "."},
	{"alias ls=rm", "alias ?"},
	{"enable -f x y", "enable ?"},
	{"hash -p /bin/rm ls", "hash ?"},
	{"bash -c 'rm x'", "rm"},
	{"sh -c \"rm x\"", "rm"},
	{"sh -ec 'rm x' sh y", "rm"},
	{"bash -o pipefail -c 'rm x'", "rm"},
	{"bash -c \"$x\"", "?"},
	{"bash -lc 'rm x'", "bash ?"},
	{"bash --rcfile x -c a", "bash ?"},
	{"bash x.sh", "bash"},
	{"bash < x", "bash ?"},
	{"echo rm | bash", "bash ?"},
	{"bash <<'E'\nrm x\nE", "rm"},
	{"bash <<< 'rm x'", "rm"},
	{"bash <<E\n$x\nE", "?"},
	{"bash $x", "bash ?"},
	{"env rm x", "rm"},
	{"env -i A=1 rm x", "rm"},
	{"env -u A -C d rm x", "rm"},
	{"env -S 'rm x'", "env ?"},
	{"env =a /b=c rm x", "rm"},
	{"sudo /b=c rm x", "/b=c sudo"},
	{"env --split-string='rm x'", "env ?"},
	{"env", "env"},
	{"env $x rm", "env ?"},
	{"timeout 5 rm x", "rm"},
	{"timeout -k 1 -s KILL 5 rm x", "rm"},
	{"timeout --sig KILL 5 rm x", "timeout ?"},
	{"timeout $t rm x", "timeout ?"},
	{"timeout \"$t\" rm x", "timeout ?"},
	{"nice -n 5 rm x", "rm"},
	{"nice -5 rm x", "rm"},
	{"nohup rm x &", "rm"},
	{"setsid -w rm x", "rm"},
	{"stdbuf -oL rm x", "rm"},
	{"sudo rm x", "sudo rm"},
	{"sudo -u bob A=1 rm x", "sudo rm"},
	{"sudo --user=bob rm x", "sudo rm"},
	{"sudo --us bob rm x", "sudo ?"},
	{"doas rm x", "doas rm"},
	{"chroot / rm x", "chroot rm"},
	{"xargs rm", "rm"},
	{"xargs -0 -n 1 rm -f", "rm"},
	{"xargs -I{} sh -c 'rm {}'", "?"},
	{"xargs", ""},
	{"xargs --max-a 1 rm", "?"},
	{"find . -exec rm {} ;", "find rm"},
	{"find . -exec rm {} \\;", "find rm"},
	{"find . -exec rm {} +", "find rm"},
	{"find . -execdir rm {} \\; -exec ls {} +", "find rm ls"},
	{"find . -exec sh -c 'rm x' \\;", "find rm"},
	{"find . -ok rm {} \\;", "find rm"},
	{"find . $x", "find ?"},
	{"find \"$x\"", "find ?"},
	{"parallel rm ::: a b", "rm"},
	{"parallel", "?"},
	{"watch -n 1 'rm x'", "rm"},
	{"watch rm x", "rm"},
	{"busybox rm x", "rm"},
	{"busybox sh -c 'rm x'", "rm"},
	{"nice nohup timeout 5 env sudo rm x", "sudo rm"},
	{"time -p rm x", "rm"},
	{"/usr/bin/time -o f rm x", "rm"},
	{"strace rm x", "strace rm"},
	{"strace -f rm x", "strace ?"},

	// programs that run others if told so
	{"git status", "git"},
	{"git -c alias.x='!rm' x", "git ?"},
	{"git -c core.pager=rm log", "git ?"},
	{"git -c core.fsmonitor=rm status", "git ?"},
	{"git -c color.ui=never log", "git"},
	{"git --exec-path=. status", "git ?"},
	{"git --git-dir=x status", "git ?"},
	{"git bisect run rm", "git ?"},
	{"git rebase -x rm HEAD", "git ?"},
	{"git rebase --exec rm HEAD", "git ?"},
	{"git rebase --exe rm HEAD", "git ?"},
	{"git submodule foreach rm", "git ?"},
	{"git grep -Orm x", "git ?"},
	{"git diff --ext-diff", "git ?"},
	{"git clone 'ext::sh -c rm' x", "git ?"},
	{"git fetch --upload-pack=rm x", "git ?"},
	{"git log --output=x", "git ?"},
	{"git log $x", "git ?"},
	{"git log -- $x", "git"},
	{"git log \"v$x\"", "git"},
	{"git config core.pager rm", "git ?"},
	{"tar xf a.tar", "tar"},
	{"tar xf a.tar --checkpoint=1 --checkpoint-action=exec=rm", "tar ?"},
	{"tar xf a.tar --checkpoint-act=exec=rm", "tar ?"},
	{"tar -xf a.tar -I rm", "tar ?"},
	{"tar -cIf rm a.tar", "tar ?"},
	{"tar cIf rm a.tar", "tar ?"},
	{"tar xf \"$x\"", "tar ?"},
	{"tar xf -- \"$x\"", "tar"},
	{"awk '{print $1}' x", "awk"},
	{"awk 'BEGIN{system(\"rm\")}'", "awk ?"},
	{"awk '{print | \"rm\"}'", "awk ?"},
	{"awk '{print > \"x\"}'", "awk ?"},
	{"awk -f x", "awk ?"},
	{"awk \"$x\"", "awk ?"},
	{"sed 's/a/b/g' x", "sed"},
	{"sed -n '1,5p;/x/,$d' x", "sed"},
	{"sed -e 's|a|b|' -e '/x/!d'", "sed"},
	{"sed 's/a/b/e' x", "sed ?"},
	{"sed '1e rm'", "sed ?"},
	{"sed 'w x'", "sed ?"},
	{"sed 's/a/b/w x'", "sed ?"},
	{"sed -f x", "sed ?"},
	{"sed \"s/$x/b/\"", "sed ?"},
	{"sed 's/[/]e rm;/x/'", "sed ?"},
	{"vim -c '!rm' x", "vim ?"},
	{"less x", "less ?"},
	{"man -P rm x", "man ?"},
	{"sort --compress-program=rm x", "sort ?"},
	{"sort --compress-prog rm x", "sort ?"},
	{"rg --pre rm x", "rg ?"},
	{"fd -x rm", "fd ?"},
	{"rsync -e rm a b:", "rsync ?"},
	{"ssh -o ProxyCommand=rm x", "ssh ?"},
	{"ssh -oProxyCommand=rm x", "ssh ?"},
	{"ssh x rm", "ssh"},
	{"go test ./...", "go"},
	{"go test -exec rm ./...", "go ?"},
	{"go build -toolexec=rm ./...", "go ?"},
	{"go vet -vettool=x", "go ?"},
	{"go run x.go", "go"},
	{"make test", "make"},
	{"make SHELL=rm", "make ?"},
	{"make --eval=x", "make ?"},
	{"npm run x", "npm"},
	{"python -c 'import os'", "python"},
	{"curl -K x", "curl ?"},
	{"wget --use-askpass=rm x", "wget ?"},
	{"zip -T -TT rm a b", "zip ?"},
	{"split --filter=rm x", "split ?"},
	{"crontab x", "crontab ?"},
	{"at now", "at ?"},

	// evasions
	{"IFS=x; echo rmxy | while read a b; do $a; done", "… ?"},
	{"IFS=m; rm x", "rm ?"},
	{"r''m x", "rm"},
	{"r$''m x", "rm"},
	{"r${x}m", "r…m ?"},
	{"r$@m x", "r…m ?"},
	{"\"r\"'m' x", "rm"},
	{"{r,x}{m,y} z", "rm"},
	{"{/bin/rm,-rf} x", "rm"},
	{"/???/rm x", "…rm ?"},
	{"/bin//rm x", "rm"},
	{"/bin/./rm x", "rm"},
	{"/bin/$x/rm y", "…rm ?"},
	{"../../bin/rm x", "…rm ?"},
	{"cd / && bin/rm x", "rm"},
	{"cd \"$d\" && bin/rm x", "…rm ?"},
	{"../rm x", "../rm"},
	{"bin/rm x", "bin/rm"},
	{"'r\\\nm' x", "r\\\nm"},
	{"ls '#' \\\nrm x", "ls"},
	{"ls <<'E'\n\\\nE\nrm x\nE", "E ls rm"},
	{"ls <<E\n\\\nE\nrm x\nE", "ls ?"},
	{"ls <<-E\n\t\\\n\tE\nrm x\nE", "E ls rm ?"},
	{"ls <<E\na \\\nE\n: '$(rm x)'\nE", "ls rm ?"},
	{"ls <<-E\na \\\n\tE\n: '$(rm x)'\n\tE", "E ls ?"},
	{"ls <<E\n\\\\\nE\nrm x", "ls rm ?"},
	{"ls <<'E'\na \\\nE\nrm x", "ls rm"},
	{"ls <<E\nE\\\n\nrm x\nE", "ls ?"},
	{"ls <<E\na \\\nb\nE", "ls ?"},
	{"flock -n f rm x", "rm"},
	{"taskset -c 0 rm x", "rm"},
	{"chrt -b 0 rm x", "rm"},
	{"setarch i686 rm x", "setarch ?"},
	{"rm\u00a0x", "rm\u00a0x"},
	{"r\u200bm x", "r\u200bm"},
	{"ｓｕｄｏ rm", "ｓｕｄｏ"},
	{"RM x", "RM"},
	{"ls;rm x", "ls rm"},
	{"ls&rm x", "ls rm"},
	{"ls|rm x", "ls rm"},
	{"ls\nrm x", "ls rm"},
	{"ls \\\n; rm x", "ls rm"},
	{"ls # \\\nrm x", "ls ?"},
	{"ls \"$(rm x)\"", "ls rm"},
	{"ls `rm x`", "ls rm"},
	{"ls \"`rm \\`a\\``\"", "a ls rm"},
	{"ls $'$(rm x)'", "ls"},
	{"ls '$(rm x)'", "ls"},
	{"ls \\$(rm x)", "?"},
	{"ls <(rm x)", "ls rm"},
	{"ls >(rm x)", "ls rm"},
	{"ls <<<\"$(rm x)\"", "ls rm"},
	{"ls <<E\n`rm x`\nE", "ls rm"},
	{"ls <<-\tE\n\t$(rm x)\n\tE", "ls rm"},
	{"ls <<\\E\n$(rm x)\nE\nrm y", "ls rm"},
	{"ls ${x:-`rm x`}", "ls rm"},
	{"ls ${x:=$(rm x)}", "ls rm"},
	{"ls ${x:+\"$(rm x)\"}", "ls rm"},
	{"ls ${x#$(rm x)}", "ls rm"},
	{"ls ${x^^$(rm x)}", "ls rm"},
	{"ls ${x[$(rm x)]}", "ls rm ?"},
	{"ls $((x[$(rm x)]))", "ls rm ?"},
	{"ls $[1+$(rm x)]", "ls rm ?"},
	{"a=([$(rm x)]=1)", "rm ?"},
	{"a=(1 \"$(rm x)\")", "rm"},
	{"local x=$(rm x)", "rm"},
	{"export x=$(rm x)", "rm"},
	{"readonly x=`rm x`", "rm"},
	{"[ \"$(rm x)\" ]", "rm"},
	{"[[ a =~ $(rm x) ]]", "rm"},
	{"case a in a) rm x;& b) b;; esac", "b rm"},
	{"while :; do rm x; break; done", "rm"},
	{"for x in $(rm x); do :; done", "rm"},
	{"for x in rm; do $x y; done", "… ?"},
	{"x=rm; $x y", "… ?"},
	{"x=rm; eval $x y", "?"},
	{"eval r\\m x", "rm"},
	{"eval \"r\"m x", "rm"},
	{"eval 'r''m' x", "rm"},
	{"eval -- rm x", "rm"},
	{"f() { rm x; }; f", "rm"},
	{"f() { rm x; } <<E\n$(a)\nE\nf", "a rm"},
	{"ls() { rm x; }; ls", "rm"},
	{"cd() { rm x; }; cd y", "rm ?"},
	{"trap 'rm x' EXIT; exit", "rm"},
	{"trap -- 'rm x' 0", "rm"},
	{"command eval 'rm x'", "rm"},
	{"command command rm x", "rm"},
	{"builtin command rm x", "rm"},
	{"exec env rm x", "rm"},
	{"env bash -c 'eval \"rm x\"'", "rm"},
	{"env -- rm x", "rm"},
	{"env A=1 env B=2 rm x", "rm"},
	{"env --chdir=d rm x", "rm"},
	{"env -vS 'rm x'", "env ?"},
	{"timeout 1 timeout 2 rm x", "rm"},
	{"timeout --foreground -- 5 rm x", "rm"},
	{"nice -n 19 -- rm x", "rm"},
	{"stdbuf -o L rm x", "rm"},
	{"setsid -- rm x", "rm"},
	{"xargs -a f -I % rm %", "rm"},
	{"xargs sh -c 'rm \"$0\"'", "rm"},
	{"xargs -P4 env rm", "rm"},
	{"find . -name '*.go' -exec grep -l x {} + -exec rm {} ;", "find grep rm"},
	{"find . -exec {} ;", "find … ?"},
	{"find . -exec env {} ;", "env find ?"},
	{"find . -fprintf x y", "find"},
	{"git -c alias.st=status st", "git ?"},
	{"git -c core.sshCommand=rm fetch", "git ?"},
	{"git --config-env=core.pager=X log", "git ?"},
	{"git -C d -c a.b=c status", "git ?"},
	{"git -p log", "git ?"},
	{"git filter-branch --tree-filter rm", "git ?"},
	{"git log --pretty='%(trailers)'", "git"},
	{"git difftool -x rm", "git ?"},
	{"git archive --remote=x --exec=rm HEAD", "git ?"},
	{"tar --to-command=rm -xf x", "tar ?"},
	{"tar --use-compress-program=rm -xf x", "tar ?"},
	{"tar --rsh-command=rm -xf h:x", "tar ?"},
	{"tar -F rm -cf x y", "tar ?"},
	{"gawk 'BEGIN{\"rm\" | getline}'", "gawk ?"},
	{"awk -v x=1 'BEGIN{system(x)}'", "awk ?"},
	{"awk --file=x", "awk ?"},
	{"awk -e 'BEGIN{system(1)}'", "awk ?"},
	{"sed --expression='1e rm' x", "sed ?"},
	{"sed -ne '1{e rm' -e '}'", "sed ?"},
	{"sed --file x", "sed ?"},
	{"vim -S x", "vim ?"},
	{"vi x", "vi ?"},
	{"ed x", "ed ?"},
	{"emacs --batch --eval x", "emacs ?"},
	{"nano x", "nano ?"},
	{"python3 -c 'import os; os.system(\"rm\")'", "python3"},
	{"perl -e 'system(1)'", "perl"},
	{"ruby -e '`rm`'", "ruby"},
	{"node -e x", "node"},
	{"php -r x", "php"},
	{"lua -e x", "lua"},
	{"ssh -o LocalCommand=rm -o PermitLocalCommand=yes x", "ssh ?"},
	{"ssh -F x y", "ssh ?"},
	{"scp -S rm a b:", "scp ?"},
	{"sftp -S rm x", "sftp ?"},
	{"rsync --rsh=rm a b:", "rsync ?"},
	{"make -f x", "make ?"},
	{"make -C d", "make"},
	{"npm exec rm", "npm"},
	{"npx rm", "npx"},
	{"cargo run", "cargo"},
	{"docker run x rm", "docker"},
	{"flock f rm x", "rm"},
	{"flock f -c 'rm x'", "?"},
	{"su -c 'rm x'", "su ?"},
	{"script -c 'rm x'", "script ?"},
	{"unshare -r rm x", "unshare ?"},
	{"nsenter -t 1 rm x", "nsenter ?"},
	{"gdb -ex 'shell rm'", "gdb ?"},
	{"busybox env rm x", "rm"},
	{"busybox find . -exec rm {} ;", "find rm"},
	{"toybox rm x", "rm"},
	{"watch 'ls; rm x'", "ls rm"},
	{"parallel 'rm {}' ::: x", "?"},
	{"parallel < x", "?"},
	{"bash -c 'bash -c \"rm x\"'", "rm"},
	{"bash -c -- 'rm x'", "rm"},
	{"bash -ic 'rm x'", "bash ?"},
	{"bash -s < x", "bash ?"},
	{"bash <(a)", "a bash ?"},
	{"bash --init-file x", "bash ?"},
	{"sh x y", "sh"},
	{"dash -c 'rm x'", "rm"},
	{"zsh -c 'rm x'", "zsh ?"},
	{"curl x | sh", "curl sh ?"},
	{"wget -O- x | bash -s -- y", "bash wget ?"},
	{"printf 'rm x' | sh", "sh ?"},
	{"source <(a)", "a source"},
	{"LESSOPEN='|rm %s' cat x", "cat ?"},
	{"ENV=x sh -c a", "a ?"},
	{"PROMPT_COMMAND=rm bash -c a", "a ?"},
	{"PS4='$(rm)' bash -c a", "a ?"},
	{"EDITOR=rm git log", "git ?"},
	{"GIT_PAGER=rm git log", "git ?"},
	{"PYTHONPATH=. python x", "python ?"},
	{"NODE_OPTIONS=-rx node y", "node ?"},
	{"GOFLAGS=-toolexec=rm go test", "go ?"},
	{"MAKEFLAGS=--eval=x make", "make ?"},
	{"LD_LIBRARY_PATH=. ls", "ls ?"},
	{"set -o allexport; rm x", "rm ?"},
	{"shopt -s expand_aliases; ls", "ls ?"},
	{"bind -x '\"a\":rm'", "bind ?"},
	{"complete -C rm x", "complete ?"},
	{"exec 3>x; rm y", "rm"},
	{"> x rm y", "rm"},
	{"2>x rm y", "rm"},
	{"A=1 B=2 rm y", "rm"},
	{"if rm x; then :; fi", "rm"},
	{"! rm x", "rm"},
	{"{ rm x; } 2>&1", "rm"},
	{"coproc rm x", "rm"},
	{"coproc N { rm x; }", "rm"},
	{"time -p rm x | a", "a rm"},

	// options, operators and texts that are made at run time
	{"find . -maxdepth 0 \"$x\" touch y \\;", "find ?"},
	{"find . -exec cat \"$x\" -delete -name \\;", "cat find ?"},
	{"find . -name \"$x\"", "find"},
	{"find . -name $x", "find ?"},
	{"find . -name -name \"$x\"", "find ?"},
	{"find src/*.go -size +1k", "find"},
	{"find *.go", "find ?"},
	{"awk \"BEGIN{sys${x}(1)}\"", "awk ?"},
	{"awk '{print}' \"$x\"", "awk"},
	{"rg -\"$x\" a .", "rg ?"},
	{"rg --p\"$x\"=y a .", "rg ?"},
	{"rg a \"v$x\"", "rg"},
	{"sort \"$x\"", "sort ?"},
	{"sort *", "sort ?"},
	{"sort ./*", "sort"},
	{"go vet -\"$x\" ./...", "go ?"},
	{"git log --outpu\"$x\"=f", "git ?"},
	{"printf -\"$x\" %s y", "?"},
	{"wait -\"$x\"", "?"},
	{"cat </dev/t\"$x\"/h/1", "cat ?"},
	{"cat <\"$x\"", "cat"},
	{"sed -i\"$x\" p y", "sed ?"},
	{"sed -i'/a/*' p y", "sed ?"},
	{"env -u [$x] cat", "env ?"},
	{"env -u ./s* cat", "env ?"},
	{"flock ./s* cat", "flock ?"},
	{"e$x git push", "e… ?"},

	// functions that may not exist
	{"false && rm() { :; }; rm x", "rm"},
	{"{ rm() { :; }; } </x; rm x", "rm"},
	{"rm() { :; }; command unset -f rm; rm x", "?"},
	{"rm() { :; }; if true; then unset -f rm; fi; rm x", "?"},
	{"rm() { :; }; f() { unset -f rm; }; f; rm x", "?"},
	{"eval() { :; }; set -o posix; eval 'rm x'", "rm ?"},
	{"false && eval 'rm() { :; }'; rm x", "rm"},
	{"rm() { :; } & rm x", "rm"},
	{"rm() { :; } >x; rm y", ""},

	// the script of a shell
	{"sh <<'E'\necho \\' ; rm x # \\'\nE", "sh ?"},
	{"echo 'rm x' | sh 3<<'E'\ntrue\nE", "sh ?"},
	{"sh <<'E' < x\ntrue\nE", "sh ?"},
	{"sh < x <<'E'\ntrue\nE", ""},
	{"sh <<'E' >x\nrm y\nE", "rm"},
	{"a <<E\n$xE\n'$(rm x)'", "?"},
	{"a <<E\n$@E\n'$(c)'\nE", "$(c) E a ?"},
	{"a <<E\n$(b)E\n'$(c)'\nE", "$(c) E a b ?"},
	{"a <<E\n$x $(b)\nE\nc", "a b c"},
	{"a <<-E\n\t$x\n\tE\nc", "a c"},
	{"a <<E; b <<F\n$x\nE\n$y\nF\nc", "a b c"},
	{"a <<E\n\nE", "a"},
	{"a <<E\nE\nb", "a b"},
	{"sh <<<'ls' <<'E'\nrm x; : \\x\nE", "sh ?"},
	{"sh <<'A' <<'B'\nls\nA\nrm x # \\y\nB", "sh ?"},
	{"sh <<'A' <<'B'\nls\nA\nrm x\nB", "rm"},

	// the word of >& is expanded twice, and ends behind a dash
	{"env >&-rm x", "x ?"},
	{"touch >&-1", "touch ?"},
	{"a >&-", "a"},
	{"a 3>&1-", "a"},
	{"a >&'$(rm x)'", "a ?"},
	{"a >&1'`rm x`'", "a ?"},
	{"a >&'<(rm x)'", "a ?"},
	{"x='$(rm x)'; a >&$x", "a ?"},
	{"x='$(rm x)'; a >&\"$x\"", "a ?"},
	{"a >&\"$(b)\"", "a b ?"},
	{"exec {fd}>x; a >&$fd", "a"},
	{"fd=3; a 2>&$fd", "a"},
	{"a >&'b c'", "a"},
	{"a >'$(rm x)' 2>&1", "a"},

	// arithmetic with what the shell itself sets
	{"REPLY=1; read <<<'a[$(rm x)]'; echo $((REPLY))", "?"},
	{"MAPFILE=1; mapfile <<<'a[$(rm x)]'; echo $((MAPFILE))", "?"},
	{"OPTARG=1; getopts a: x; echo $((OPTARG))", "?"},
	{"_=1; : 'a[$(rm x)]'; : $((_))", "?"},
	{"PWD=1; cd 'a[$(rm x)]'; echo $((PWD))", "?"},
	{"x=1; p='a[$(rm x)]'; : $((${x/1/$p}))", "?"},
	{"x=1; : $((${x:0:1}))", "?"},
	{"set -- 'a[$(rm x)]'; builtin export 1=5; : $(($1))", "?"},
	{"x=1; : $((x))", ""},

	// options and values that look like each other
	{"find . -maxdepth 0 ! -fstype -name -exec rm x \\;", "find ?"},
	{"find . -D -name -delete", "find ?"},
	{"find . -samefile -name -fprint x", "find ?"},
	{"find . -name -x", "find"},
	{"echo push | xargs -I{} -L1 git", "git ?"},
	{"echo -delete | xargs -I{} -L1 find .", "find ?"},
	{"echo -delete | xargs -I{} -E -IZ find . {}", "find ?"},
	{"echo x | xargs -E -IZ cat", "cat"},
	{"echo x | xargs -I{} cat {}", "cat"},
	{"tree -Po '*' x", "tree ?"},
	{"tree -L 2", "tree"},
	{"go list --debug-trace=x ./...", "go ?"},
	{"go list --mod=mod ./...", "go ?"},
	{"go vet -fix", "go ?"},
	{"git ls-remote --u='rm x; git-upload-pack' .", "git ?"},
	{"git archive --remote=. --e=rm", "git ?"},
	{"/usr/lib/git-core/git-push origin", "/usr/lib/git-core/git-push git"},
	{"git-push origin", "git git-push"},
	{"sed 's/[^]/]/;/w out/p' x", "sed ?"},
	{"sed 's/[]/]/;/w out/p' x", "sed ?"},
	{"sed 's/[^a]/b/' x", "sed"},
	{"bash -coo pipefail errexit 'rm x'", "rm"},
	{"echo 'rm x' | xargs -0I % sh -c %", "?"},
	{"watch -x find . '#' -delete", "?"},

	// builtins and patterns
	{"jobs -x rm x", "?"},
	{"history -s x", "?"},
	{"shopt -s nullglob", "?"},
	{"set -o posix", "?"},
	{"set -euo pipefail", ""},
	{"set -ex", ""},
	{"set +B", "?"},
	{"[[ a == @($(rm x)) ]]", "?"},
	{"[[ a == @(b|c) ]]", ""},

	// options of programs
	{"rg -e -- -e root --pre=x .", "rg ?"},
	{"git grep -e -- -e root -Orm", "git ?"},
	{"git grep -nOrm x", "git ?"},
	{"git rebase -qx rm", "git ?"},
	{"git clone -u rm x", "git ?"},
	{"git clone -c core.sshCommand=rm x", "git ?"},
	{"git log --patch", "git"},
	{"git diff --text", "git"},
	{"git checkout --patch", "git ?"},
	{"go vet -debug-trace=x", "go ?"},
	{"go list -mod=mod", "go ?"},
	{"GOCACHEPROG=./x go vet", "go ?"},

	// scripts that are not scripts
	{"echo 'a", "?"},
	{"if", "?"},
	{"a )", "?"},
	{strings.Repeat("eval ", 20) + "a", "?"},
	{"( ( ( a ) ) )", "a"},
	{"(((a)))", "?"},
	{"{1..100000}{1..100000}", "… ?"},
}

// programs returns the programs of a script as cases have them.
func programs(s Script) string {
	var all []string
	for _, c := range s.Commands {
		if !c.Builtin && !c.Wraps {
			all = append(all, Printable(c.Args[0]))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(s.Obscure) > 0 {
		all = append(all, "?")
	}
	return strings.Join(all, " ")
}

func sorted(text string) string {
	words := strings.Fields(strings.TrimSuffix(text, "?"))
	if text == "a b" { // one name with a blank
		words = []string{text}
	}
	slices.Sort(words)
	words = slices.Compact(words)
	if strings.HasSuffix(text, "?") {
		words = append(words, "?")
	}
	return strings.Join(words, " ")
}

func TestPrograms(t *testing.T) {
	for _, tt := range cases {
		s := Analyze(tt.script, Options{Bash: true})
		if got := programs(s); got != sorted(tt.programs) && got != tt.programs {
			t.Errorf("%q: %s, want %s; not understood: %q", tt.script, got, tt.programs, s.Obscure)
		}
	}
}

// real are programs that TestBash runs; all others only record their names.
var real = []string{
	"bash", "sh", "env", "timeout", "nice", "nohup", "setsid", "stdbuf", "xargs", "find", "busybox",
}

// TestBash compares the programs that bash runs with those that Analyze finds.
func TestBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	bin := t.TempDir()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "m", "r", "x", "y"}
	for _, tt := range cases {
		for _, name := range strings.Fields(tt.programs) {
			if !strings.ContainsAny(name, "…?/.") {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		stub := "#!/bin/sh\necho '" + name + "' >>$LOG\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range real {
		if found, err := exec.LookPath(name); err == nil {
			_ = os.Remove(filepath.Join(bin, name))
			if err := os.Symlink(found, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range cases {
		s := Analyze(tt.script, Options{Bash: true})
		if len(s.Obscure) > 0 {
			continue
		}
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, bash, "--norc", "--noprofile", "-c", tt.script)
		cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
		cmd.Env = []string{"PATH=" + bin, "LOG=" + log}
		_ = cmd.Run() // scripts may fail
		if cancel(); ctx.Err() != context.Canceled {
			t.Fatalf("%q does not end", tt.script)
		}
		ran, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		hole := false
		for _, c := range s.Commands {
			found = append(found, filepath.Base(c.Args[0]))
			hole = hole || c.Args[0] == "." || c.Args[0] == "source" ||
				strings.ContainsAny(c.Args[0], holes)
		}
		for _, name := range strings.Fields(string(ran)) {
			if !slices.Contains(found, name) && !hole {
				t.Errorf("%q ran %s; found are %q", tt.script, name, found)
			}
		}
	}
}

func FuzzAnalyze(f *testing.F) {
	for _, tt := range cases {
		f.Add(tt.script, true)
	}
	f.Fuzz(func(t *testing.T, script string, bash bool) {
		s := Analyze(script, Options{Bash: bash})
		for _, c := range s.Commands {
			if len(c.Args) == 0 {
				t.Errorf("%q has a command without a program", script)
			}
			_ = c.String()
		}
	})
}
