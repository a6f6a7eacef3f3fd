package confine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// text is a string in a profile, and pattern one that is a regular expression; symbols are strings, and lists []any.
type (
	text    string
	pattern string
)

// readForms reads the forms that a profile consists of.
func readForms(s string) (forms []any, err error) {
	for {
		s = strings.TrimLeft(s, " \n")
		if s == "" {
			return forms, nil
		}
		var form any
		if form, s, err = readForm(s); err != nil {
			return nil, err
		}
		forms = append(forms, form)
	}
}

func readForm(s string) (form any, rest string, err error) {
	switch {
	case strings.HasPrefix(s, "("):
		list := []any{}
		for s = strings.TrimLeft(s[1:], " \n"); !strings.HasPrefix(s, ")"); s = strings.TrimLeft(s, " \n") {
			var item any
			if item, s, err = readForm(s); err != nil {
				return nil, "", err
			}
			list = append(list, item)
		}
		return list, s[1:], nil
	case strings.HasPrefix(s, `#"`):
		raw, rest, ok := strings.Cut(s[2:], `"`)
		if !ok {
			return nil, "", errors.New("a pattern does not end")
		}
		return pattern(raw), rest, nil
	case strings.HasPrefix(s, `"`):
		var b strings.Builder
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '"':
				return text(b.String()), s[i+1:], nil
			case '\\':
				if i++; i == len(s) {
					continue
				}
			}
			b.WriteByte(s[i])
		}
		return nil, "", errors.New("a string does not end")
	}
	end := strings.IndexAny(s, " \n()\"#;")
	if end < 1 {
		return nil, "", fmt.Errorf("no form: %.20q", s)
	}
	return s[:end], s[end:], nil
}

// condition is a part of a rule, such as (subpath "/tmp").
type condition struct{ how, value string }

// aRule is one of a profile.
type aRule struct {
	allow      bool
	operations []string
	conditions []condition
}

// readProfile reads a profile with its parameters.
func readProfile(t *testing.T, profile string, parameters []string) (rules []aRule) {
	t.Helper()
	values := make(map[string]string)
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		if _, ok := values[name]; ok {
			t.Fatalf("two parameters are named %s", name)
		}
		values[name] = value
	}
	forms, err := readForms(profile)
	if err != nil {
		t.Fatalf("%v in\n%s", err, profile)
	}
	used := make(map[string]bool)
	for i, form := range forms {
		list := form.([]any)
		if i == 0 {
			if !slices.Equal(list, []any{"version", "1"}) {
				t.Fatalf("the profile begins with %v", list)
			}
			continue
		}
		r := aRule{allow: list[0] == "allow"}
		if !r.allow && list[0] != "deny" {
			t.Fatalf("%v is no rule", list)
		}
		for _, item := range list[1:] {
			switch item := item.(type) {
			case string:
				r.operations = append(r.operations, item)
			case []any:
				r.conditions = append(r.conditions, readCondition(t, item, values, used))
			default:
				t.Fatalf("there is %v in %v", item, list)
			}
		}
		rules = append(rules, r)
	}
	for name := range values {
		if !used[name] {
			t.Errorf("the parameter %s is not used", name)
		}
	}
	return rules
}

func readCondition(t *testing.T, list []any, values map[string]string, used map[string]bool) condition {
	t.Helper()
	how, ok := list[0].(string)
	if ok && how == "remote" && list[1] == "unix-socket" {
		if list = list[1:]; len(list) == 1 {
			return condition{how, ""}
		}
		return readCondition(t, list[1].([]any), values, used)
	}
	if !ok || len(list) != 2 {
		t.Fatalf("%v is no condition", list)
	}
	switch what := list[1].(type) {
	case string:
		return condition{how, what}
	case text:
		return condition{how, string(what)}
	case pattern:
		return condition{how, string(what)}
	case []any:
		name, ok := what[1].(text)
		if what[0] != "param" || len(what) != 2 || !ok {
			t.Fatalf("%v is no parameter", what)
		}
		value, ok := values[string(name)]
		if !ok {
			t.Fatalf("there is no parameter %q", name)
		}
		used[string(name)] = true
		return condition{how, value}
	}
	t.Fatalf("%v is no condition", list)
	return condition{}
}

func (c condition) holds(name string) bool {
	switch c.how {
	case "literal":
		return name == c.value
	case "subpath":
		return Inside(name, c.value)
	case "regex":
		return regexp.MustCompile(c.value).MatchString(name)
	}
	return false
}

// allowed decides as the system does: the last rule whose condition holds counts, and without one, the last that has none.
func allowed(rules []aRule, operation, name string) bool {
	otherwise, found, decision := false, false, false
	for _, r := range rules {
		if !slices.ContainsFunc(r.operations, func(o string) bool {
			prefix, wild := strings.CutSuffix(o, "*")
			return o == operation || o == "default" || wild && strings.HasPrefix(operation, prefix)
		}) {
			continue
		}
		if len(r.conditions) == 0 {
			otherwise = r.allow
		} else if slices.ContainsFunc(r.conditions, func(c condition) bool { return c.holds(name) }) {
			found, decision = true, r.allow
		}
	}
	if found {
		return decision
	}
	return otherwise
}
