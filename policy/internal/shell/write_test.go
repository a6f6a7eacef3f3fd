package shell

import (
	"strings"
	"testing"
)

// TestFiles compares the files that scripts write, and those that they name.
func TestFiles(t *testing.T) {
	for _, tt := range []struct{ script, writes string }{
		{"a >x 2>y &>>z", "x y z"},
		{"a >/dev/null 2>&1", ""},
		{"a >&x", "x"},
		{"a >|x <>y", "x y"},
		{"rm -rf x ../y /z", "../y /z x"},
		{"cd d && rm x", "d/x"},
		{"cd d && cd e && rm x ../../y", "d/e/x y"},
		{"cd d; rm x", "…/x"},
		{"cd d || exit; rm x", "…/x"},
		{"set -e; cd d; rm x", "…/x"},
		{"(cd d && rm x); rm y", "d/x y"},
		{"cd \"$d\" && rm x", "…/x"},
		{"cd /d && rm x", "/d/x"},
		{"if a; then cd d; fi; rm x", "…/x"},
		{"cp -r a b c", "c"},
		{"cp -t d a b", "d"},
		{"cp --target-directory=d a b", "d"},
		{"mv a b", "a b"},
		{"mv -t d a b", "a b d"},
		{"ln -sf /d/a", "a"},
		{"scp h:a .", "a h:a"},
		{"chmod -x a b", "a b"},
		{"chown --reference=r a", "a"},
		{"shuf -o x y", "x"},
		{"a > .gi{t..t}/x", ".git/x"},
		{"ln -s a b", "b"},
		{"tee -a x y", "x y"},
		{"sed -i s/a/b/ x y", "x y"},
		{"sed -i.bak -e s/a/b/ x", "x"},
		{"sed s/a/b/ x", ""},
		{"touch -d now x", "x"},
		{"chmod +x a b", "a b"},
		{"dd if=a of=b", "b"},
		{"sort -o x y", "x"},
		{"sort -ox y", "x"},
		{"curl -o x y", "x"},
		{"curl -sSLo x y", "x"},
		{"find d -name x -delete", "…"},
		{"find d -fprint x", "x"},
		{"find d -exec rm {} +", "…"},
		{"xargs rm", "…"},
		{"truncate -s 0 x", "x"},
		{"git -C d diff >x", "x"},
		{"env -C d rm x", "d/x"},
		{"sudo rm x", "x"},
		{"tar xf a", "."},
		{"/usr/bin/time -o x a", "x"},
		{"rm -- -x", "-x"},
		{"> x", "x"},
		{"cd d && false || a > x", "…/x"},
		{"cd d || return; a > x", "…/x"},
		{"! cd d && a > x", "…/x"},
		{"set -e; (cd d; a > x)", "…/x"},
		{"for i in 1 2; do a > x; c\\d d; done", "…/x"},
		{"f() { a > x; }; eval 'cd d'; f", "…/x"},
		{"if cd d; then a > x; fi", "…/x"},
		{"sort --out=x y", "x"},
		{"cp --target-dir=d a", "d"},
		{"sort --temporary-directory -- -o x y", "x"},
		{"sort \"$x\"", "…"},
		{"tree -oa", "a"},
		{"flock f ls", "f"},
		{"env -C d ls && a >x", "x"},
		{"sudo -D d ls && a >x", "x"},
		{"git checkout -- x y", "x y"},
		{"git checkout main", ""},
		{"git -C d rm x", "d/x"},
		{"cd d && git rm x", "d/x"},
		{"patch -d d x", "d x"},
		{"curl -O https://h/x", "."},
		{"curl -sSO https://h/x", "."},
		{"curl --remote-name https://h/x", "."},
		{"curl https://h/x", ""},
		{"wget https://h/x", "."},
		{"curl --remote-nam https://h/x", "."},
		{"wget -q -O y https://h/x", ". y"},
		{"wget -UOpera https://h/x", "."},
		{"gunzip d/x.gz", "d/x.gz"},
		{"git rm :/x", "…"},
		{"git rm 'x*'", "…"},
		{"git rm --pathspec-from-file=f", "…"},
		{"cd d && git -C '' rm x", "d/x"},
		{"git rm -f x", "x"},
		{"git mv x y", "x y"},
		{"git restore x", "x"},
		{"perl -i -pe s/a/b/ x", "x"},
		{"perl -pi s/a/b/ x", "x"},
		{"sed -i -Ee s/a/b/ x", "x"},
		{"tar xf a.tar -C /d", ". /d"},
		{"tar --directory=/d -xf a.tar", ". /d"},
		{"tar cf /d/a b", ". /d/a"},
		{"tar -czf/d/a b", ". /d/a"},
		{"tar --append --file /d/a b", ". /d/a"},
		{"unzip a.zip -d /d", ". /d"},
		{"patch < x", "."},
		{"install -d x y", "x y"},
		{"cp a b/c .", "a c"},
		{"cp -r a/. .", "."},
		{"cp a d/", "d/a"},
	} {
		s := Analyze(tt.script, Options{Bash: true, Home: "/home/u"})
		if got := Printable(strings.Join(s.Writes, " ")); got != tt.writes {
			t.Errorf("%q writes %s, want %s", tt.script, got, tt.writes)
		}
	}
}

// TestMayWrite compares the files that git may write.
func TestMayWrite(t *testing.T) {
	for script, want := range map[string]string{
		"git checkout HEAD d/x": ". HEAD d/x", "git -C d checkout x": "d/x …", "git reset --hard": ".",
		"cd d && git stash pop": "…", "git clean -fdx": ".", "git apply x.patch": ".", "git log": "",
		"gunzip d/x.gz": "d/x…", "gzip .env": "…", "git clone u d": "d u", "git worktree add d": "add d",
		"git archive -o f HEAD": "HEAD f",
		"git status":            "", "git add .": "", "git commit -m x": "",
	} {
		s := Analyze(script, Options{Bash: true})
		if got := Printable(strings.Join(s.MayWrite, " ")); got != want {
			t.Errorf("%q may write %s, want %s", script, got, want)
		}
	}
}
