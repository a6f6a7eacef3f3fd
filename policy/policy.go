package policy

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/policy/internal/shell"
)

// An Action is a decision.
type Action string

// Actions, the strictest last.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

var actions = []Action{Allow, Ask, Deny}

// Stricter returns the stricter one of two actions. The empty one is the least strict.
func Stricter(a, b Action) Action {
	if slices.Index(actions, a) >= slices.Index(actions, b) {
		return a
	}
	return b
}

// Classes of tools.
const (
	ClassRead   = "read"
	ClassWrite  = "write"
	ClassSearch = "search"
	ClassShell  = "shell"
	ClassAgent  = "agent"
	ClassHuman  = "human"
	// ClassRepeat is for calls with the tool and the arguments of the two calls before.
	ClassRepeat = "repeat"
)

var classes = []string{
	ClassRead, ClassWrite, ClassSearch, ClassShell, ClassAgent, ClassHuman, ClassRepeat,
}

// A Risk is how much harm a tool can do.
type Risk string

// Levels of risk.
const (
	Safe      Risk = "safe"
	Moderate  Risk = "moderate"
	Dangerous Risk = "dangerous"
)

// RiskOf returns the risk of the tools of a class: Safe for those that change nothing, Moderate for
// ClassWrite, and Dangerous for commands and everything unknown.
func RiskOf(class string) Risk {
	switch class {
	case ClassRead, ClassSearch, ClassAgent, ClassHuman:
		return Safe
	case ClassWrite:
		return Moderate
	}
	return Dangerous
}

// Rule decides calls that match it.
type Rule struct {
	// Permission is a tool, a class, a level of risk or "*".
	Permission string
	// Pattern is for the subject; empty means "*".
	Pattern string
	Action  Action
	// Source is where the rule comes from, for messages: a file with a line, a flag or a preset.
	Source string
}

// String returns the rule in the form of flags, PERMISSION:PATTERN, after its action.
func (r Rule) String() string {
	return fmt.Sprintf("%s %s:%s", r.Action, r.Permission, cmp.Or(r.Pattern, "*"))
}

// Policy is a list of rules. Its methods may be called concurrently.
type Policy struct {
	Rules []Rule
	// Default decides calls that no rule matches; empty means Allow for safe tools, Ask for others.
	Default Action
	// also are other policies: the strictest decision counts.
	also []*Policy
}

// Check returns an error for the first rule that can never match, since its permission is neither
// "*" nor a class, a level of risk or one of tools.
func (p *Policy) Check(tools []string) error {
	known := slices.Concat([]string{"*"}, classes, []string{
		string(Safe), string(Moderate), string(Dangerous),
	}, tools)
	for _, r := range p.Rules {
		if !slices.Contains(known, r.Permission) {
			return fmt.Errorf("%s: the permission %q is unknown (known: %s)", r.Source, r.Permission,
				strings.Join(known, ", "))
		}
	}
	for _, q := range p.also {
		if err := q.Check(tools); err != nil {
			return err
		}
	}
	return nil
}

// Tighten returns a policy that decides like p, or like q where q is stricter. Where no rule of q
// matches, and q has no default, p decides. A nil p allows everything.
func (p *Policy) Tighten(q *Policy) *Policy {
	if p == nil {
		p = &Policy{Default: Allow}
	}
	second := *q
	second.Default = cmp.Or(q.Default, Allow)
	both := *p
	both.also = append(slices.Clip(p.also), &second)
	return &both
}

// AnyOf returns the subject of a call that names files by a pattern with "*", "?", "[" or "{".
func AnyOf(pattern string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("*?[]{},", r) {
			return shell.Split
		}
		return r
	}, pattern)
}

// Request is a call of a tool.
type Request struct {
	// Tool is the name of the tool, Class its class; may be empty.
	Tool, Class string
	// Risk is that of the tool; empty means RiskOf(Class).
	Risk Risk
	// Subject is what patterns are compared with.
	Subject string
	// WorkDir and Home are the absolute working directory and the home directory of the environment.
	WorkDir, Home string
	// Base is the absolute directory that relative patterns for files start from; empty means WorkDir.
	// It differs for an agent that works in a part of the working directory of its session.
	Base string
	// Bash means that bash runs the command; else another shell does that follows POSIX, or with
	// Foreign one that does not.
	Bash, Foreign bool
}

// WithShell returns the request for a program that runs commands, such as "/bin/bash".
func (q Request) WithShell(program string) Request {
	name := path.Base(program)
	q.Bash = name == "bash"
	q.Foreign = !slices.Contains([]string{"bash", "sh", "dash", "ash", "busybox"}, name)
	return q
}

// Decision is the decision about a call.
type Decision struct {
	Action Action
	// Steps are the parts of the call with the decision about each, in the order of the call.
	Steps []Step
}

// Grant returns the decision if rules that allow something count, too, for the parts that ask.
func (d Decision) Grant(rules []Rule) Decision {
	if d.Action != Ask || len(rules) == 0 {
		return d
	}
	granted := Decision{Action: Allow}
	for _, s := range d.Steps {
		if s.Action == Ask {
			for i := range rules {
				r := &rules[i]
				if r.Action == Allow && r.concerns(s.request) && r.compare(s.request, s.raw) == always {
					s.Action, s.Rule, s.Reason = Allow, r, ""
					break
				}
			}
		}
		granted.Action = Stricter(granted.Action, s.Action)
		granted.Steps = append(granted.Steps, s)
	}
	return granted
}

// Exactly returns rules that allow what a decision asks about and nothing else; nil if there are
// none, because it asks about repeated calls, parts that are not understood, values that are known
// only at run time, directories of files that rules are about, or programs whose names depend on
// the directory.
func Exactly(steps []Step) []Rule {
	var rules []Rule
	for _, s := range steps {
		if s.Action != Ask {
			continue
		}
		pattern, q := s.raw, s.request
		program, _, _ := strings.Cut(pattern, " ")
		relative := strings.Contains(program, "/") && !path.IsAbs(program)
		switch {
		case pattern == "", strings.ContainsAny(pattern, holes), q.Class == ClassRepeat,
			s.Reason == aboutFileIn,
			q.Class == ClassShell && relative:
			return nil
		case q.Class == ClassRead || q.Class == ClassWrite:
			_, pattern = q.names(pattern)
		}
		rules = append(rules, Rule{
			Permission: s.Permission, Pattern: Escape(pattern), Action: Allow, Source: "an approval",
		})
	}
	return rules
}

// Step is a part of a call.
type Step struct {
	// Permission and Subject are those that the rules were compared with.
	Permission, Subject string
	Action              Action
	// Rule decided; nil if none matched.
	Rule *Rule
	// Reason explains a decision that no rule made; may be empty.
	Reason string

	// request and raw are what rules were compared with; raw may have holes.
	request Request
	raw     string
}

// Decide decides a call.
func (p *Policy) Decide(r Request) Decision {
	if r.Class == ClassShell {
		return p.command(r)
	}
	s := p.step(r, r.Subject)
	return Decision{s.Action, []Step{s}}
}

// step decides one subject.
func (p *Policy) step(r Request, subject string) Step {
	s := p.own(r, subject)
	for _, q := range p.also {
		if t := q.step(r, subject); Stricter(s.Action, t.Action) != s.Action {
			s = t
		}
	}
	return s
}

// own decides one subject without the other policies.
func (p *Policy) own(r Request, subject string) Step {
	s := Step{
		Permission: cmp.Or(r.Class, r.Tool), Subject: subject, Action: Allow, request: r, raw: subject,
	}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if !rule.concerns(r) {
			continue
		}
		switch rule.compare(r, subject) {
		case always:
			if s.Action == Allow || rule.Action == Deny {
				s.Action, s.Rule, s.Reason = Stricter(s.Action, rule.Action), rule, ""
			}
			return s
		case sometimes:
			if rule.Action != Allow && s.Action == Allow {
				s.Action, s.Rule = Ask, rule
				s.Reason = "it depends on values that are known only when the command runs"
			}
		case never:
			if rule.Action != Allow && s.Action == Allow && r.Class == ClassWrite &&
				rule.isBelow(r, subject) {
				s.Action, s.Rule, s.Reason = Ask, rule, aboutFileIn
			}
		}
	}
	if d := p.defaultAction(r); s.Action == Allow || d == Deny {
		s.Action, s.Rule, s.Reason = d, nil, "no rule matches"
	}
	return s
}

// aboutFileIn is the reason of a step about a directory of files that a rule is about.
const aboutFileIn = "the rule is about a file in it"

// withoutDefaults returns a policy that allows what no rule matches.
func (p *Policy) withoutDefaults() *Policy {
	q := &Policy{Rules: p.Rules, Default: Allow}
	for _, other := range p.also {
		q.also = append(q.also, other.withoutDefaults())
	}
	return q
}

// defaultAction returns the action for a call that no rule matches.
func (p *Policy) defaultAction(r Request) Action {
	switch {
	case p.Default != "":
		return p.Default
	case r.risk() == Safe:
		return Allow
	}
	return Ask
}

func (q Request) risk() Risk { return cmp.Or(q.Risk, RiskOf(q.Class)) }

// concerns reports whether the permission of a rule is for a request.
func (r Rule) concerns(q Request) bool {
	switch r.Permission {
	case "*", q.Tool, q.Class, string(q.risk()):
		return true
	}
	return false
}

// compare compares the pattern of a rule with a subject.
func (r Rule) compare(q Request, subject string) match {
	pattern := cmp.Or(r.Pattern, "*")
	if pattern == "*" {
		return always
	}
	if q.Class != ClassRead && q.Class != ClassWrite {
		if differs(pattern, subject) {
			return never
		}
		return compileText(pattern).match(subject)
	}
	pattern = q.tidy(pattern)
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok { // any directory may be the home
		if !strings.ContainsAny(subject, holes) {
			_, subject = q.names(subject)
		}
		if compilePath("**/"+rest).match(subject) == never {
			return never
		}
		return sometimes
	}
	if strings.ContainsAny(subject, holes) {
		return compareUnknown(pattern, subject, q.Class == ClassWrite)
	}
	inside, absolute := q.names(subject)
	if path.IsAbs(pattern) {
		return compilePath(pattern).match(absolute)
	}
	if inside == "" {
		return never
	}
	return compilePath(pattern).match(inside)
}

// tidy returns a pattern for files in the form of the names that it is compared with: "./a" as "a",
// "a/" as "a/**", and absolute if it starts with a known home directory, or leads out of Base.
func (q Request) tidy(pattern string) string {
	rest, home := strings.CutPrefix(pattern, "~/")
	dir, base := strings.HasSuffix(pattern, "/"), cmp.Or(q.Base, q.WorkDir)
	switch {
	case home && q.Home != "":
		pattern = path.Join(Escape(q.Home), rest)
	case home:
		pattern = "~" + path.Clean("/"+rest)
	default:
		pattern = path.Clean(pattern)
	}
	if base != "" && (pattern == ".." || strings.HasPrefix(pattern, "../")) {
		pattern = path.Join(Escape(base), pattern)
	}
	switch {
	case dir && pattern == ".":
		return "**"
	case dir:
		return strings.TrimSuffix(pattern, "/") + "/**"
	}
	return pattern
}

// isBelow reports whether the files that a rule is about are certainly in a directory.
func (r Rule) isBelow(q Request, dir string) bool {
	files := q.tidy(r.Pattern)
	if i := strings.IndexAny(files, `*?\`); i >= 0 {
		files = files[:i]
	}
	inside, absolute := q.names(dir)
	switch {
	case files == "":
		return false
	case path.IsAbs(files):
		return strings.HasPrefix(files, strings.TrimSuffix(absolute, "/")+"/")
	case inside == "" || strings.ContainsAny(dir, holes):
		return false
	}
	return inside == "." || strings.HasPrefix(files, inside+"/")
}

// holes are the characters that stand for texts that only the shell knows.
const holes = string(shell.Hole) + string(shell.Split) + string(shell.Glob)

// compareUnknown compares a pattern with the name of a file that has holes. Since slashes and ".."
// may be in one, only the end of the name tells something, and no pattern certainly matches. With
// dirs the name may be a directory of files that the pattern is about.
func compareUnknown(pattern, name string, dirs bool) match {
	_, last := path.Split(name)
	if i := strings.LastIndexAny(last, holes); i >= 0 {
		_, size := utf8.DecodeRuneInString(last[i:])
		last = string(shell.Hole) + last[i+size:]
	}
	rest, end := path.Split(pattern)
	for n := 0; n > 0 && end == "**" || compilePath(end).match(last) == never; n++ {
		if rest == "" || rest == "/" || !dirs {
			return never
		}
		rest, end = path.Split(strings.TrimSuffix(rest, "/"))
	}
	return sometimes
}

// names returns a name of a file relative to Base, empty if it is certainly not in that, and
// absolute.
func (q Request) names(name string) (inside, absolute string) {
	base := cmp.Or(q.Base, q.WorkDir)
	if absolute = path.Clean(name); !path.IsAbs(absolute) {
		absolute = path.Join("/", q.WorkDir, name)
	}
	if base == "" {
		inside = path.Clean(name)
		if path.IsAbs(inside) || inside == ".." || strings.HasPrefix(inside, "../") {
			inside = ""
		}
		return inside, absolute
	}
	dir := path.Clean(base)
	switch rest, ok := strings.CutPrefix(absolute, strings.TrimSuffix(dir, "/")+"/"); {
	case ok:
		return rest, absolute
	case absolute == dir:
		return ".", absolute
	}
	return "", absolute
}

// command decides a command of a shell.
func (p *Policy) command(r Request) Decision {
	if r.Foreign {
		s := p.step(r, string(shell.Split))
		s.Subject, s.Reason = r.Subject, "not understood: a command of this shell"
		return Decision{s.Action, []Step{s}}
	}
	script := shell.Analyze(r.Subject, shell.Options{Bash: r.Bash, Home: r.Home})
	var d Decision
	add := func(s Step) {
		s.Subject = shell.Printable(s.Subject)
		d.Action = Stricter(d.Action, s.Action)
		d.Steps = append(d.Steps, s)
	}
	for _, c := range script.Commands {
		s := p.step(r, c.String())
		if strings.Contains(c.Args[0], "/") { // what is denied is denied wherever its program is
			c.Args[0] = path.Base(c.Args[0])
			if named := p.step(r, c.String()); named.Rule != nil && named.Action == Deny {
				s = named
			}
		}
		switch {
		case !c.Builtin && !c.Wraps:
			add(s)
		case s.Rule != nil && s.Action != Allow: // what the command runs is decided for itself
			add(s)
		case c.Builtin:
			s.Action, s.Rule, s.Reason = Allow, nil, "a builtin of the shell"
			add(s)
		}
	}
	acts := len(script.Writes)+len(script.Reads)+len(script.Obscure) > 0
	if len(script.Commands) == 0 && strings.TrimSpace(r.Subject) != "" { // such as "> FILE"
		if s := p.step(r, r.Subject); acts || s.Rule != nil && s.Action != Allow {
			add(s)
		}
	}
	write := r
	write.Tool, write.Class = "", ClassWrite
	for _, name := range script.Writes {
		add(p.step(write, name))
	}
	rules := p.withoutDefaults()
	for _, name := range script.MayWrite {
		if s := rules.step(write, name); s.Action != Allow {
			add(s)
		}
	}
	read := r
	read.Tool, read.Class = "", ClassRead
	for _, name := range script.Names {
		if s := rules.step(read, name); s.Action != Allow {
			add(s)
		}
	}
	for _, name := range script.Reads { // no program of a rule reads it
		if s := p.step(read, name); s.Action != Allow {
			add(s)
		}
	}
	for _, text := range script.Obscure {
		s := p.step(r, string(shell.Split))
		s.Reason = "not understood: " + text
		add(s)
	}
	d.Action = cmp.Or(d.Action, Allow)
	return d
}

// Hides reports whether the policy denies every call of a tool, so that a model need not be offered
// it. Of the request only Tool, Class and Risk count.
func (p *Policy) Hides(r Request) bool {
	for _, q := range p.also {
		if q.Hides(r) {
			return true
		}
	}
	for i := range p.Rules {
		if rule := &p.Rules[i]; rule.concerns(r) {
			if rule.Action != Deny {
				return false
			}
			if pattern := cmp.Or(rule.Pattern, "*"); pattern == "*" {
				return true
			}
		}
	}
	return p.defaultAction(r) == Deny
}
