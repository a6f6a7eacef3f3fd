package shell

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzBash compares the programs that bash runs in random scripts with those that Analyze finds.
// A script is made from a seed, so that it can name stubs and standard programs only.
func FuzzBash(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("needs bash")
	}
	count := 300
	if !testing.Short() {
		count = 5000
	}
	for range count {
		f.Add(rand.Uint64())
	}
	bin := f.TempDir()
	names := []string{"a", "b", "c", "rm"}
	for _, name := range names {
		stub := "#!/bin/sh\necho '" + name + "' >>$LOG\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	for _, name := range []string{"bash", "sh", "env", "timeout", "nice", "xargs", "find", "nohup"} {
		if found, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(found, filepath.Join(bin, name)); err != nil {
				f.Fatal(err)
			}
		}
	}
	// The stubs write what ran.
	const known = "a; { b | c; }; sh -c rm"
	if ran := inBash(f, bash, bin, known); len(ran) != len(names) {
		f.Fatalf("%q ran %q", known, ran)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		script := randomScript(rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // the seed is known
		s := Analyze(script, Options{Bash: true})
		if len(s.Obscure) > 0 {
			return
		}
		var found []string
		for _, c := range s.Commands {
			if strings.ContainsAny(c.Args[0], holes) {
				found = append(found, names...)
			}
			found = append(found, c.Args[0])
		}
		for _, name := range inBash(t, bash, bin, script) {
			if !slices.Contains(found, name) {
				t.Fatalf("%q ran %s; found are %q", script, name, found)
			}
		}
	})
}

// inBash returns the names of the stubs in bin that a script runs.
func inBash(t testing.TB, bash, bin, script string) []string {
	t.Helper()
	// A script may leave a process that writes in the directory for a while.
	dir, err := os.MkdirTemp(bin, "run-*") //nolint:usetesting // removed below
	if err != nil {
		t.Fatal(err)
	}
	// A pattern in a redirection must not find the log, to which errors of bash would go.
	log, work := filepath.Join(dir, "log"), filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	defer func() {
		for os.RemoveAll(dir) != nil && ctx.Err() == nil {
		}
	}()
	cmd := exec.CommandContext(ctx, bash, "--norc", "--noprofile", "-c", script)
	cmd.Dir, cmd.WaitDelay = work, time.Second
	cmd.Env = []string{"PATH=" + bin, "LOG=" + log, "HOME=" + work}
	_ = cmd.Run()              // scripts may fail
	ran, _ := os.ReadFile(log) // missing if nothing ran
	return strings.Fields(string(ran))
}

// pieces are what random scripts are made of.
var pieces = append(strings.Split(`a|b|c|rm|x|y|1| |  |;|;;|&|&&| \|\| |\||
|(|)|{ |; }|$(|)|"|'|\`+"`"+`|\|\\n|$x|"$x"|${x:-|}|$((|))|[[ | ]]|[ | ]|if |; then |; fi|for x in |
; do |; done|case x in |*) |;; esac|
<<E
|E
|<<<|<(|>(|>o|<o|2>&1|!|~|*|?|{a,b}|{|}|,|x=|x=a |f() { |f|eval |command |exec |bash -c |
sh -c |env |timeout 5 |nice |xargs |find . -exec |{} \;|set -- |$1|$@|trap |EXIT|unset |cd |
time |builtin |test |printf |read |local |export |declare |
$'|\x61|\x62|#|=|+=|-c|-e|--|nohup |'a[$(rm)]'|$((x))|${x/1/$1}|REPLY=1;|read <<<|$((REPLY))|$_|
$((_))|_=1;|x=1;|sh <<<'a' |<<'E'|xargs -I{} |-L1 |-name |-fstype |-exec rm ;|env -C . |\x|
'$(rm)'|>&|<&|&>|"$1"|'$x'`, "|"),
	"\n", "\\\n", "<<E\n", "\nE\n", "<<-E\n\t", "\n\tE\n", "# ", "\r", "\\\r\n", "\"${x:-'", "'}\"",
	"OPTIND=", "trap $x EXIT;", "x='rm${IFS}x'", "declare -a x='(", ")'", "x=()", "{a..a}",
	"wait -np ",
	"sleep 0 &", "x='-v a[$(rm${IFS}x)]';", "[ $x ]", "y=v;", "[ \"-$y\" ", "read -ax <<<", "{a[b]}>o")

func randomScript(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(14) {
		piece := pieces[r.IntN(len(pieces))]
		if piece == "" || piece == "\\" {
			piece = "|"
		}
		b.WriteString(piece)
		if r.IntN(3) == 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}
