package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// redactArguments returns the arguments of a call without their secrets. Without a secret they stay
// as the model wrote them.
func redactArguments(r *redact.Redactor, args string) string {
	whole := r.Text(args)
	dec := json.NewDecoder(strings.NewReader(args))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return whole // which no tool accepts
	}
	clean, found := redactValue(r, v)
	if !found && whole == args {
		return args
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(clean); err != nil {
		return whole
	}
	return strings.TrimSpace(b.String())
}

// redactValue returns a value of JSON without the secrets in its texts, and reports whether it had
// any.
func redactValue(r *redact.Redactor, v any) (clean any, found bool) {
	switch v := v.(type) {
	case string:
		text := r.Text(v)
		return text, text != v
	case json.Number:
		if text := r.Text(v.String()); text != v.String() {
			return text, true
		}
	case []any:
		for i := range v {
			var has bool
			v[i], has = redactValue(r, v[i])
			found = found || has
		}
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, value := range v {
			shown := r.Text(name)
			value, has := redactValue(r, value)
			if text, ok := value.(string); ok && !has { // the name may tell that it is a secret
				assigned, ok := strings.CutPrefix(r.Text(name+"="+text), name+"=")
				if has = ok && assigned != text; has {
					value = assigned
				}
			}
			object[shown] = value
			found = found || has || shown != name
		}
		return object, found
	}
	return v, found
}

// withoutSecrets returns surroundings whose texts of the project are redacted.
func withoutSecrets(s profile.Surroundings, r *redact.Redactor) profile.Surroundings {
	s.Docs = slices.Clone(s.Docs)
	for i := range s.Docs {
		s.Docs[i].Text = r.Text(s.Docs[i].Text)
	}
	if s.Git != nil {
		git := *s.Git
		git.Commits = slices.Clone(git.Commits)
		for i := range git.Commits {
			git.Commits[i] = r.Text(git.Commits[i])
		}
		s.Git = &git
	}
	return s
}
