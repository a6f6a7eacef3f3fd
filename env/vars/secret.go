package vars

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Mark replaces a secret.
const Mark = "[REDACTED]"

// SecretNames returns the patterns of the names of variables that hold secrets. A star matches any
// characters; case is ignored. The caller owns the slice.
func SecretNames() []string {
	return []string{
		"*_API_KEY",
		"*_SECRET",
		"*_TOKEN",
		"*_PASSWORD",
		"*_PASSWD",
		"*_CREDENTIAL",
		"*_CREDENTIALS",
		"*_PRIVATE_KEY",
		"*_SECRET_*",
		"*_ACCESS_KEY",
	}
}

// A rule finds one kind of secret: the text of the group of re, if ok is nil or accepts it. Every
// match contains one of the hints, which are in lower case and much faster to find than re.
type rule struct {
	hints []string
	re    func() *regexp.Regexp
	ok    func(text string) bool
}

// nameWord matches the end of the name of a secret before "=" or ":" in commands, headers and
// configuration: X_TOKEN, --api-key, password, x-api-key.
var nameWord = wordPattern(SecretNames())

// The patterns are compiled on first use, which saves half a millisecond of each start.
var (
	nameRE = lazyregexp.New(`(?is)^(?:` + starPattern(SecretNames()) + `)$`)
	flagRE = lazyregexp.New(`(?i)^--?[\w.-]*(?:` + nameWord + `)$`)
	// argRE matches an argument that is an assignment to such a name: its value extends to the end,
	// blanks included.
	argRE = lazyregexp.New(`(?is)^\S*?(?:` + nameWord + `)=(.+)$`)
)

// valueRules find secrets by their form alone.
var valueRules = []rule{
	{
		// A private key in PEM form; a truncated one extends to the end of the text.
		hints: []string{"private key"},
		re: lazyregexp.New(`(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?` +
			`(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----|\z))`),
	},
	{
		// The user and the password of a URL. A password may have an unescaped slash, unless the part
		// before the slash may be a port.
		hints: []string{"://"},
		re: lazyregexp.New(`[A-Za-z][A-Za-z0-9+.-]*://` +
			"([^\\s/?#@:\\[\"'`<>]*:(?:[^\\s/?#\"'`<>]+|" +
			"[^\\s/?#@\"'`<>]*[^\\s/?#@0-9\"'`<>][^\\s@\"'`<>]*))@"),
	},
	token(`[A-Za-z0-9_]{20,}`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
	token(`[\w.-]{16,}`, "glpat-", "gloas-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-",
		"glsoat-"),
	// Slack.
	token(`[A-Za-z0-9-]{10,}`, "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
	// Amazon Web Services.
	token(`[A-Z0-9]{16,}`, "AKIA", "ASIA"),
	// Google and others.
	token(`[\w-]{20,}`, "AIza", "ya29.", "pypi-", "dckr_pat_"),
	// Stripe.
	token(`[A-Za-z0-9]{16,}`, "sk_live_", "sk_test_", "rk_live_", "rk_test_"),
	// npm, Hugging Face, Groq.
	token(`[A-Za-z0-9]{30,}`, "npm_", "hf_", "gsk_"),
	// SendGrid.
	token(`[\w-]{16,}\.[\w-]{16,}`, "SG."),
	// JSON web tokens.
	token(`[\w-]{8,}\.[\w-]*\.[\w-]*(?:\.[\w-]*\.[\w-]*)?`, "eyJ"),
	// OpenAI, Anthropic and others. Ordinary words start with the same prefix.
	{
		hints: []string{"sk-"}, ok: looksRandom,
		re: lazyregexp.New(`(?:^|[^A-Za-z0-9])(sk-[\w-]{16,})`),
	},
}

var contextHints = []string{
	"key", "secret", "token", "passw", "credential", "authorization", "cookie",
}

// contextRules find secrets by the name before them.
var contextRules = []rule{
	{
		// NAME=value, where value is one word of a shell, quoted or not.
		hints: contextHints,
		re: lazyregexp.New(`(?is)(?:` + nameWord + `)=` +
			`((?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\.|[^\s"'\\])+)`),
	},
	{
		// NAME: value, as in headers, YAML and JSON. A value without quotes extends to the end of the
		// line, but text after a mark stays.
		hints: contextHints,
		re: lazyregexp.New(`(?i)(?:` + nameWord + `|authorization|cookie)["']?[ \t]*:[ \t]*` +
			`("(?:[^"\\\r\n]|\\.)*"?|'[^'\r\n]*'?|[^\r\n"']+)`),
		ok: func(text string) bool { return !strings.HasPrefix(text, Mark) },
	},
}

// allRules starts with contextRules, which need whole values.
var allRules = slices.Concat(contextRules, valueRules)

// IsSecretName reports whether name matches one of SecretNames.
func IsSecretName(name string) bool { return nameRE().MatchString(name) }

// HasSecret reports whether s contains a secret with a known form: a key with a well-known prefix,
// a private key, a JSON web token, or a URL with a password.
func HasSecret(s string) bool {
	lower := strings.ToLower(s)
	for _, r := range valueRules {
		if _, found := r.replace(s, lower); found {
			return true
		}
	}
	return false
}

// Redact replaces secrets with a known form in s, and values after a name of SecretNames, by Mark.
// It is idempotent.
func Redact(s string) string {
	// A replacement can expose another match beside it. Each round leaves fewer bytes outside of
	// marks, or as many and fewer marks, so the loop ends.
	lower := strings.ToLower(s)
	for {
		changed := false
		for _, r := range allRules {
			if t, found := r.replace(s, lower); found {
				s, lower, changed = t, strings.ToLower(t), true
			}
		}
		if !changed {
			return s
		}
	}
}

// RedactArgv returns a copy of argv with secrets redacted in every argument. The value of a flag
// named like a secret is replaced as a whole, in the same argument or in the next.
func RedactArgv(argv []string) []string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		out[i] = redactArg(arg)
		if i > 0 && flagRE().MatchString(argv[i-1]) {
			out[i] = Mark
		}
	}
	return out
}

func redactArg(arg string) string {
	if strings.Contains(arg, "=") {
		if m := argRE().FindStringSubmatchIndex(arg); m != nil {
			return Redact(arg[:m[2]]) + Mark
		}
	}
	return Redact(arg)
}

// replace replaces each secret that r finds in s by Mark, and reports whether it found one. It
// searches for the hints in lower, which is s in lower case.
func (r rule) replace(s, lower string) (string, bool) {
	if !slices.ContainsFunc(r.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
		return s, false
	}
	var b strings.Builder
	done := 0
	for _, m := range r.re().FindAllStringSubmatchIndex(s, -1) {
		start, end := m[2], m[3]
		text := s[start:end]
		if text == Mark || r.ok != nil && !r.ok(text) {
			continue
		}
		b.WriteString(s[done:start])
		b.WriteString(Mark)
		done = end
	}
	if done == 0 {
		return s, false
	}
	b.WriteString(s[done:])
	return b.String(), true
}

// looksRandom reports whether s has a run of letters and digits longer than in words and version
// numbers: 12 with a letter and a digit, or 24 of any.
func looksRandom(s string) bool {
	run, letter, digit := 0, false, false
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			run, digit = run+1, true
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			run, letter = run+1, true
		default:
			run, letter, digit = 0, false, false
		}
		if run >= 24 || run >= 12 && letter && digit {
			return true
		}
	}
	return false
}

// starPattern returns a regular expression for whole names that match one of the patterns.
func starPattern(patterns []string) string {
	var alternatives []string
	for _, p := range patterns {
		alternatives = append(alternatives, strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`))
	}
	return strings.Join(alternatives, "|")
}

// wordPattern returns a regular expression for the end of such a name, without the text of the
// leading star. Dashes match like underscores.
func wordPattern(patterns []string) string {
	var alternatives []string
	for _, p := range patterns {
		p = strings.TrimPrefix(p, "*_")
		p = strings.ReplaceAll(p, "_", "[_-]")
		p = strings.ReplaceAll(p, "*", `[\w.-]*`)
		alternatives = append(alternatives, p)
	}
	return strings.Join(alternatives, "|")
}

// token returns the rule for keys with one of the prefixes of their issuer.
func token(tail string, prefixes ...string) rule {
	var hints, alternatives []string
	for _, p := range prefixes {
		hints = append(hints, strings.ToLower(p))
		alternatives = append(alternatives, regexp.QuoteMeta(p))
	}
	return rule{
		hints: hints,
		re: lazyregexp.New(
			`(?:^|[^A-Za-z0-9])((?:` + strings.Join(alternatives, "|") + `)` + tail + `)`),
	}
}
