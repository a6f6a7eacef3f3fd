package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// rules parses lines of the form ACTION PERMISSION:PATTERN.
func rules(t testing.TB, lines ...string) *Policy {
	t.Helper()
	p := &Policy{}
	for _, line := range lines {
		action, text, _ := strings.Cut(line, " ")
		r, err := ParseRule(Action(action), text, "test")
		if err != nil {
			t.Fatal(err)
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// TestCommands decides commands by the same rules.
func TestCommands(t *testing.T) {
	p := rules(t, "deny shell:git push *", "allow shell:git *", "allow shell:echo *",
		"deny write:.git/**", "allow write:**", "deny read:**/.env", "deny shell:rm *",
		"ask shell:ls secret",
		"allow shell:ls *",
		"allow shell:cat *", "allow shell:tar *")
	for command, want := range map[string]Action{
		"":                                     Allow,
		"git status":                           Allow,
		"git":                                  Allow,
		"gitx":                                 Ask,
		"/usr/bin/git status":                  Allow,
		"./git status":                         Ask,
		"git push":                             Deny,
		"git push origin":                      Deny,
		"git -C . push":                        Deny,
		"git --no-pager push":                  Deny,
		"git 'push'":                           Deny,
		"git status; git push":                 Deny,
		"git status; make":                     Ask,
		"git $x":                               Ask,
		"git log -- $x":                        Ask,
		"cat \"a$x\"":                          Ask, // it may be .env
		"echo $x":                              Ask, // it names nothing, but any name is possible
		"echo a":                               Allow,
		"timeout 5 git push":                   Deny,
		"timeout 5 git log":                    Allow,
		"sudo git log":                         Ask,
		"bash -c 'git push'":                   Deny,
		"$x":                                   Ask,
		"eval \"$x\"":                          Ask,
		"rm x":                                 Deny,
		"find . -exec rm {} +":                 Deny,
		"cat x > y":                            Allow,
		"cat x > /y":                           Ask,
		"cat x > .git/config":                  Deny,
		"cat x > ./.git/../.git/x":             Deny,
		"cat x > /w/.git/config":               Deny,
		"cat .env":                             Deny,
		"cat a/b/.env":                         Deny,
		"cat /w/.env":                          Deny,
		"cat < .env":                           Deny,
		"git diff --no-index .env":             Deny,
		"cat \"a$x.go\"":                       Allow,
		"cd .; cat .env":                       Ask,
		"cat \"$PWD/.env\"":                    Ask,
		"cat /w/.en$x":                         Ask,
		"cat src/*.go":                         Allow,
		"cat *":                                Ask,
		"./git push":                           Deny,
		"/opt/git/git push":                    Deny,
		"/opt/git/git --no-pager push":         Deny,
		"/proc/self/root/usr/bin/env git push": Deny,
		"/proc/self/root/bin/sh -c 'git push'": Deny,
		"../../../opt/tools/env git push":      Deny,
		"cd .. && ../opt/env git push":         Deny,
		"[[ -f x ]]":                           Allow,
		"x=1":                                  Allow,
		">x":                                   Ask,
		"e$x git push":                         Ask,
		"ls secret":                            Ask,
		"ls other":                             Allow,
		"ls \"$x\"":                            Ask,
		"tar xf a.tar":                         Ask,
		"tar xf a -I rm":                       Ask,
		"cd a && git log":                      Allow,
		"if true; then git push; fi":           Deny,
		"echo 'a":                              Ask,
	} {
		d := p.Decide(Request{
			Tool: "shell", Class: ClassShell, Subject: command, Bash: true,
			WorkDir: "/w", Home: "/home/u",
		})
		if d.Action != want {
			t.Errorf("%s: %s, want %s; %+v", command, d.Action, want, d.Steps)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"a", "a/b", "/etc/passwd", "../x", "."}, nil},
		{"**", []string{"a", "a/b", ".", "/w/a"}, []string{"/etc/passwd", "../x", "/"}},
		{"*.go", []string{"a.go", "./a.go", "/w/a.go"}, []string{"b/a.go", "a.goo", "/a.go"}},
		{"**/*.go", []string{"a.go", "b/a.go", "c/b/a.go"}, []string{"a.g", "/x/a.go"}},
		{"src/**", []string{"src", "src/a", "src/a/b", "src/../src/a"}, []string{"srcx", "src/../a"}},
		{"a?c", []string{"abc", "aéc"}, []string{"a/c", "ac", "abbc"}},
		{"/etc/**", []string{"/etc", "/etc/a", "../etc/a", "/etc/a/../b"}, []string{"etc/a", "/etcx"}},
		{"/w/a", []string{"a", "/w/a"}, []string{"b"}},
		{"~/.ssh/**", []string{"/home/u/.ssh/id", "/home/u/.ssh"}, []string{".ssh/id", "/v/.ssh"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b"}, []string{"a/xb", "ab"}},
		{"./a", []string{"a", "./a"}, []string{"b/a"}},
		{"a/", []string{"a", "a/b", "a/b/c"}, []string{"b", "ab"}},
		{"./", []string{"a", "."}, []string{"/etc"}},
		{"../x/*", []string{"/x/a", "../x/a"}, []string{"x/a", "/x/a/b"}},
		{"~/d/../e", []string{"/home/u/e"}, []string{"e"}},
		{"/", []string{"/etc", "a", "/"}, nil},
	} {
		p := rules(t, "allow read:"+tt.pattern)
		p.Default = Deny
		for want, names := range map[Action][]string{Allow: tt.yes, Deny: tt.no} {
			for _, name := range names {
				r := Request{Class: ClassRead, Subject: name, WorkDir: "/w", Home: "/home/u"}
				if got := p.Decide(r).Action; got != want {
					t.Errorf("%s and %s: %s", tt.pattern, name, got)
				}
			}
		}
	}
}

// TestBase decides calls of an agent that works in a part of the working directory.
func TestBase(t *testing.T) {
	p := rules(t, "deny write:secrets/**", "deny write:.git/**", "allow write:src/**", "deny write")
	for subject, want := range map[string]Action{
		"/w/secrets key": Deny, "/w/.git config": Deny, "/w/src x": Allow, "/w/other src/x": Deny,
		"/w/src ../src/y": Allow, "/w a": Deny, "/w src/a": Allow,
	} {
		dir, name, _ := strings.Cut(subject, " ")
		for _, r := range []Request{
			{Tool: "write_file", Class: ClassWrite, Subject: name},
			{Tool: "shell", Class: ClassShell, Subject: "echo x >" + name, Bash: true},
		} {
			r.WorkDir, r.Base = dir, "/w"
			d := p.Decide(r)
			if last := d.Steps[len(d.Steps)-1]; last.Action != want {
				t.Errorf("%s of %s: %+v", subject, r.Tool, last)
			}
		}
	}
}

// TestCheck finds a permission that no call has.
func TestCheck(t *testing.T) {
	tools := []string{"write_file"}
	known := rules(t, "allow *", "deny write_file", "ask shell:x", "ask dangerous", "deny repeat")
	if err := known.Check(tools); err != nil {
		t.Error(err)
	}
	bad := rules(t, "deny writefile")
	for _, p := range []*Policy{bad, known.Tighten(bad)} {
		if err := p.Check(tools); err == nil || !strings.Contains(err.Error(),
			`the permission "writefile" is unknown (known: *, read, `) {
			t.Error(err)
		}
	}
}

// TestPresets decides commands by the built-in policies.
func TestPresets(t *testing.T) {
	for _, tt := range []struct {
		command                      string
		readOnly, workspaceWrite, ci Action
	}{
		{"git status", Allow, Allow, Allow},
		{"git log -3 -- src", Allow, Allow, Allow},
		{"git -C . diff", Allow, Allow, Allow},
		{"git -C other diff", Deny, Ask, Allow},
		{"cd other && git diff", Deny, Ask, Allow},
		{"git branch -v -D main", Deny, Ask, Allow},
		{"ls -la && cat go.mod | head -5", Allow, Allow, Allow},
		{"find . -name '*.go' | xargs grep -n main", Allow, Allow, Allow},
		{"find . -name '*.go' -delete", Deny, Ask, Allow},
		{"grep -rn main . > out.txt", Deny, Allow, Allow},
		{"grep -rn main . > ../out.txt", Deny, Ask, Allow},
		{"echo x > .git/config", Deny, Deny, Allow},
		{"echo 'ref: refs/heads/x' > HEAD", Deny, Ask, Allow},
		{"echo 'ref: refs/heads/x' > deep/HEAD", Deny, Ask, Allow},
		{"go test ./...", Deny, Ask, Allow},
		{"go vet ./...", Allow, Allow, Allow},
		{"sed -n 1,5p x", Allow, Allow, Allow},
		{"sed -i s/a/b/ x", Deny, Allow, Allow},
		{"rm -rf build", Deny, Ask, Allow},
		{"sudo ls", Deny, Ask, Deny},
		{"git push", Deny, Ask, Deny},
		{"/usr/lib/git-core/git push", Deny, Ask, Deny},
		{"git send-pack x", Deny, Ask, Deny},
		{"$x", Deny, Ask, Ask},
		{"npm test", Deny, Ask, Allow},
		{"/usr/lib/git-core/git-push origin main", Deny, Ask, Deny},
		{"git subtree push -P x y", Deny, Ask, Deny},
		{"sh <<<'ls' <<'E'\ngit push; : \\x\nE", Deny, Ask, Ask},
		{"echo push | xargs -I{} -L1 git", Deny, Ask, Ask},
	} {
		for preset, want := range map[string]Action{
			"read-only": tt.readOnly, "workspace-write": tt.workspaceWrite, "ci": tt.ci, "full": Allow,
		} {
			r := Request{
				Tool: "shell", Class: ClassShell, Subject: tt.command, Bash: true, WorkDir: "/w",
				Home: "/home/u",
			}
			if got := Preset(preset).Decide(r); got.Action != want {
				t.Errorf("%s: %s: %s; %+v", preset, tt.command, got.Action, got.Steps)
			}
		}
	}
}

// TestDirectories decides commands that write a directory of files that rules are about.
func TestDirectories(t *testing.T) {
	p := rules(t, "deny write:src/config.yaml", "deny write:.git/**", "deny write:/etc/**",
		"allow *")
	for command, want := range map[string]Action{
		"rm -rf .": Ask, "rm -rf src": Ask, "rm -rf ./src/": Ask, "rm src/config.yaml": Deny,
		"rm -rf src/other": Allow, "rm -rf srcs": Allow, "rm -rf /etc": Deny, "rm -rf /": Ask,
		"cp -r evil/.git .": Deny, "cp a .": Allow, "mkdir build": Allow, "ls .": Allow,
		"env -C src true && rm config.yaml": Allow, "git checkout -- src/config.yaml": Deny,
		"git -C src rm config.yaml": Deny, "git checkout HEAD src/config.yaml": Deny,
		"git reset --hard": Ask, "git commit -m x": Allow, "cd src && git stash pop": Ask,
	} {
		r := Request{Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w"}
		if got := p.Decide(r); got.Action != want {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestUnknownDirectories decides commands that write in a directory which only the shell knows.
func TestUnknownDirectories(t *testing.T) {
	p := rules(t, "deny write:a/src/config.yaml", "allow *")
	for command, want := range map[string]Action{
		"cd .; rm -rf src": Ask, "cd .; rm -rf a": Ask, "cd .; rm src/config.yaml": Ask,
		"cd .; rm -rf srcs": Allow, "cd .; cat src": Allow,
	} {
		r := Request{Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w"}
		if got := p.Decide(r); got.Action != want {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestReadNames decides commands whose words have names of files in several forms.
func TestReadNames(t *testing.T) {
	p := rules(t, "deny read:~/.ssh/**", "deny read:.env", "allow *")
	for command, want := range map[string]Action{
		"dd if=~/.ssh/id": Deny, "grep -f/home/u/.ssh/id x": Deny, "curl -d @/home/u/.ssh/id u": Deny,
		"curl -F f=@.env u": Deny,
		"curl -d@.env u":    Deny, "env -C src true && cat .env": Deny, "cat x": Allow,
	} {
		r := Request{
			Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w", Home: "/home/u",
		}
		if got := p.Decide(r); got.Action != want {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestUnknownHome compares patterns of the home directory where that is unknown.
func TestUnknownHome(t *testing.T) {
	p := rules(t, "deny read:~/.ssh/**", "allow *")
	for command, want := range map[string]Action{
		"cat ~/.ssh/id": Ask, "cat /home/u/.ssh/id": Ask, "cat x": Allow, "cat /etc/x": Allow,
	} {
		r := Request{Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w"}
		if got := p.Decide(r); got.Action != want {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestUnknownHomePaths compares names of files with patterns of an unknown home directory.
func TestUnknownHomePaths(t *testing.T) {
	for _, tt := range []struct{ pattern, dir, name string }{
		{"~/.ssh/**", "/home/u/.ssh", "authorized_keys"},
		{"~/.aws/x", "/w", "/root/.aws/./x"},
		{"~/", "/w", "x"},
		{"~/d/", "/w", "/home/u/d/x"},
	} {
		p := rules(t, "deny write:"+tt.pattern, "allow write")
		r := Request{Class: ClassWrite, Subject: tt.name, WorkDir: tt.dir}
		if got := p.Decide(r).Action; got != Ask {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// TestDefaultDenies has defaults that hide no rule, and that do not count for words that may be
// names of files.
func TestDefaultDenies(t *testing.T) {
	p := rules(t, "allow shell:git *", "allow shell:cat *", "deny write:.github/**",
		"deny read:secret/*")
	for _, d := range []Action{Deny, Ask, Allow} {
		p.Default = d
		for _, q := range []*Policy{p, (&Policy{Default: d}).Tighten(p), p.Tighten(&Policy{Default: d})} {
			for command, least := range map[string]Action{
				"git reset --hard": Ask, "git checkout HEAD .github/x": Deny, "cat secret/a": Deny,
				"cat secret/$x": Ask, "cat other": Allow, "git checkout main": Ask,
				"cat <secret/a": Deny, ": <other": d, "while true; do :; done <other": d,
				"while read x; do :; done <>other": d,
			} {
				r := Request{Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w"}
				if got := q.Decide(r); Stricter(got.Action, least) != got.Action ||
					q == p && least == Allow && got.Action != Allow {
					t.Errorf("default %s: %s: %+v", d, command, got)
				}
			}
		}
	}
}

// TestForeign decides commands of a shell that does not follow POSIX.
func TestForeign(t *testing.T) {
	for text, want := range map[string]Action{
		"allow shell:dir *": Ask, "allow shell": Allow, "deny shell:del *; allow *": Ask,
	} {
		r := Request{
			Tool: "shell", Class: ClassShell, Subject: "dir 'a & del x'", Foreign: true, WorkDir: "/w",
		}
		if got := rules(t, lines(text)...).Decide(r); got.Action != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestAnyOf decides calls that name files by patterns.
func TestAnyOf(t *testing.T) {
	p := rules(t, "deny read:**/.env")
	for pattern, want := range map[string]Action{
		".e*": Ask, "**/*": Ask, "src/*.go": Allow, "**/.env": Ask, "{a,b}.go": Allow, ".env": Deny,
	} {
		r := Request{Tool: "x", Class: ClassRead, Subject: AnyOf(pattern), WorkDir: "/w"}
		if got := p.Decide(r); got.Action != want {
			t.Errorf("%s: %+v", pattern, got)
		}
	}
}

// TestExactly checks that the rules allow the parts that a decision asks about, and no others.
func TestExactly(t *testing.T) {
	ask := rules(t, "ask *")
	shell := func(command string) Request {
		return Request{Tool: "shell", Class: ClassShell, Subject: command, Bash: true, WorkDir: "/w"}
	}
	write := func(name string) Request {
		return Request{Tool: "write_file", Class: ClassWrite, Subject: name, WorkDir: "/w"}
	}
	for _, tt := range []struct {
		asked, then Request
		want        Action
	}{
		{shell("make a*"), shell("make a*"), Ask}, // the shell expands it
		{shell("make 'a*'"), shell("make 'a*'"), Allow},
		{shell("make 'a*'"), shell("make ab"), Ask},
		{shell("make"), shell("make x"), Ask},
		{shell("make >out"), shell("make >out"), Allow},
		{shell("make >out"), shell("cd d && make >out"), Ask},
		{shell("./b.sh"), shell("./b.sh"), Ask}, // which file that is depends on the directory
		{write("./a"), write("a"), Allow},
		{write("../x"), write("/x"), Allow},
		{write("~/x"), write("/home/u/x"), Ask},
		{Request{Class: ClassRepeat, Subject: "x"}, Request{Class: ClassRepeat, Subject: "x"}, Ask},
		{Request{Tool: "x"}, Request{Tool: "x"}, Ask}, // without a subject
	} {
		granted := Exactly(ask.Decide(tt.asked).Steps)
		then := tt.then
		then.Home = "/home/u"
		if got := ask.Decide(then).Grant(granted).Action; got != tt.want {
			t.Errorf("%s, then %s: %s; %v", tt.asked.Subject, tt.then.Subject, got, granted)
		}
	}
}

// TestOrder checks which rule decides.
func TestOrder(t *testing.T) {
	read := Request{Tool: "read_file", Class: ClassRead, Subject: "a"}
	for _, tt := range []struct {
		rules string
		r     Request
		want  Action
	}{
		{"", Request{Tool: "x"}, Ask},
		{"", Request{Tool: "x", Risk: Safe}, Allow},
		{"", Request{Tool: "x", Risk: Moderate}, Ask},
		{"", read, Allow},
		{"", Request{Tool: "write_file", Class: ClassWrite, Subject: "a"}, Ask},
		{"", Request{Class: ClassRepeat, Subject: "x"}, Ask},
		{"allow safe; deny moderate; ask *", read, Allow},
		{"allow safe; deny moderate; ask *", Request{Class: ClassWrite, Subject: "a"}, Deny},
		{"allow safe; deny moderate; ask *", Request{Tool: "x", Risk: Moderate}, Deny},
		{"allow safe; deny moderate; ask *", Request{Tool: "x"}, Ask},
		{"allow *", Request{Tool: "x"}, Allow},
		{"deny x; allow *", Request{Tool: "x"}, Deny},
		{"allow *; deny x", Request{Tool: "x"}, Allow},
		{"deny read; allow read_file", read, Deny},
		{"allow read_file; deny read", read, Allow},
		{"allow list_dir; deny read", read, Deny},
		{"deny search:s*", Request{Tool: "grep", Class: ClassSearch, Subject: "secrets"}, Deny},
		{"deny search:s*", Request{Tool: "grep", Class: ClassSearch, Subject: "a secret"}, Allow},
	} {
		if got := rules(t, lines(tt.rules)...).Decide(tt.r).Action; got != tt.want {
			t.Errorf("%s: %+v: %s", tt.rules, tt.r, got)
		}
	}
}

// TestTighten combines two policies.
func TestTighten(t *testing.T) {
	for _, tt := range []struct {
		rules, by string
		otherwise Action // the default of by
		subject   string
		want      Action
	}{
		{"allow *", "deny shell:rm *", "", "rm x", Deny},
		{"allow *", "deny shell:rm *", "", "ls; rm x", Deny},
		{"allow *", "deny shell:rm *", "", "ls", Allow},
		{"ask *", "allow *", "", "ls", Ask},
		{"deny *", "ask *", "", "ls", Deny},
		{"", "allow shell:ls", "", "ls", Ask},
		{"allow shell:ls", "allow *", Deny, "ls", Allow},
		{"allow shell:ls", "allow read", Deny, "ls", Deny},
		{"allow *", "deny read:.env", "", "cat .env", Deny},
		{"allow *", "deny write:a", "", "ls > a", Deny},
	} {
		by := rules(t, lines(tt.by)...)
		by.Default = tt.otherwise
		p := rules(t, lines(tt.rules)...).Tighten(by)
		r := Request{Tool: "shell", Class: ClassShell, Subject: tt.subject, WorkDir: "/w"}
		if got := p.Decide(r).Action; got != tt.want {
			t.Errorf("%s, tightened by %s: %s is %s", tt.rules, tt.by, tt.subject, got)
		}
		if got := p.Tighten(rules(t, "deny shell")).Decide(r).Action; got != Deny {
			t.Errorf("%s, tightened twice: %s", tt.rules, got)
		}
	}
	var none *Policy
	p := none.Tighten(rules(t, "deny shell"))
	if got := p.Decide(Request{Tool: "x"}).Action; got != Allow {
		t.Errorf("without rules: %s", got)
	}
	if !p.Hides(Request{Tool: "shell", Class: ClassShell}) || p.Hides(Request{Tool: "x"}) {
		t.Error("it hides another tool")
	}
}

// lines separates rules.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "; ")
}

func TestHides(t *testing.T) {
	for text, want := range map[string]bool{
		"":                             false,
		"deny shell":                   true,
		"deny *":                       true,
		"deny shell:a; deny shell":     true,
		"allow shell:a; deny shell":    false,
		"deny shell:a":                 false,
		"allow read; deny *":           true,
		"allow write_file; deny shell": true,
	} {
		if got := rules(t, lines(text)...).Hides(Request{Tool: "shell", Class: ClassShell}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	p, err := Parse([]byte(`
preset: ci
default: ask
rules:
  - {permission: shell, pattern: "make *", action: deny}
  - permission: write_file
    action: allow
`), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Rules[:2]); got != "[deny shell:make * allow write_file:*]" ||
		p.Default != Ask || p.Rules[0].Source != "p.yaml:5" || p.Rules[2].Source != "the preset ci" {
		t.Errorf("%s, %+v", got, p.Rules)
	}
	const rule0 = "p.yaml:2: rules[0]"
	for text, want := range map[string]string{
		"rules: x":               "p.yaml:1: rules: a list is required",
		"rulez: []":              "p.yaml:1: rulez: unknown field (known: preset, default, rules)",
		"preset: x":              `p.yaml:1: preset: "x" is not one of ` + strings.Join(Presets(), ", "),
		"default: maybe":         `p.yaml:1: default: "maybe" is not one of allow, ask, deny`,
		"rules:\n- action: deny": rule0 + ": permission and action are required",
		"rules:\n- x": rule0 + ": a mapping with the fields permission, pattern, action is " +
			"required",
		"rules:\n- {permission: 1, action: deny}": rule0 + ".permission: a text is required; put it " +
			"in quotes",
		"rules:\n- {action: deny, action: deny}": rule0 + ".action: given twice",
		"rules:\n- {permission: a b, action: deny}": rule0 + `.permission: "a b" is not a tool, a ` +
			"class of tools or *",
		"rules:\n- {action: no}": rule0 + `.action: "no" is not one of allow, ask, deny`,
		"a: [":                   "p.yaml: line 1: did not find expected node content",
		"default: ask\n---":      "p.yaml: more than one document",
	} {
		_, err := Parse([]byte(text), "p.yaml")
		var bad *SyntaxError
		if !errors.As(err, &bad) || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestSchema compares the published schema with Parse.
func TestSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(Schema), &s); err != nil {
		t.Fatal(err)
	}
	schema, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{
		"rules: x", "rulez: []", "preset: x", "default: maybe", "rules:\n- action: deny", "rules:\n- x",
		"rules:\n- {permission: 1, action: deny}", "rules:\n- {permission: a b, action: deny}",
		"rules:\n- {permission: shell, action: no}", "rules:\n- {permission: 'a:b', action: deny}",
		"rules:\n- {permission: shell, action: deny, pattern: ''}",
		"rules:\n- {permission: shell, action: deny, reason: x}",
		"rules: []", "default: ask",
	}
	for _, action := range []Action{Allow, Ask, Deny} {
		texts = append(texts, fmt.Sprintf("rules:\n- {permission: '*', action: %s, pattern: x}", action))
	}
	for _, name := range Presets() {
		texts = append(texts, "preset: "+name)
	}
	for _, n := range []int{1000, 1001} {
		texts = append(texts, "rules:\n"+strings.Repeat("- {permission: x, action: ask}\n", n))
	}
	for _, text := range texts {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		_, perr := Parse([]byte(text), "f")
		if serr := schema.Validate(v); (serr == nil) != (perr == nil) {
			t.Errorf("%.60q: the schema says %v, Parse %v", text, serr, perr)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("allow shell:git *", "git log $x")
	f.Add("allow shell:git *", "git")
	f.Add("allow shell:git *", "g\uffff")
	f.Fuzz(func(t *testing.T, rule, command string) {
		action, text, _ := strings.Cut(rule, " ")
		r, err := ParseRule(Action(action), text, "f")
		if err != nil {
			return
		}
		p := &Policy{Rules: []Rule{r}}
		for _, class := range []string{ClassShell, ClassRead, ClassSearch} {
			p.Decide(Request{Class: class, Subject: command, WorkDir: "/w"})
		}
		// else compiled characters are replacements
		valid := utf8.ValidString(rule) && utf8.ValidString(command)
		if valid && differs(r.Pattern, command) && compileText(r.Pattern).match(command) != never {
			t.Errorf("%q matches %q in spite of how it begins", r.Pattern, command)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p := Preset("workspace-write")
	r := Request{
		Tool: "shell", Class: ClassShell, Bash: true, WorkDir: "/w",
		Subject: "cd sub && go test ./... 2>&1 | grep -v '^ok' | head -50 > out.txt",
	}
	for b.Loop() {
		p.Decide(r)
	}
}
