package vars

import (
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Mark replaces a secret.
const Mark = "[REDACTED]"

// A rule finds one kind of secret: the text of the group of re, if ok is nil or accepts it. Every
// match contains one of the hints, and also, which may be empty. Hints are in lower case, of two
// bytes at least, and much faster to find than re.
type rule struct {
	hints []string
	also  string
	re    func() *regexp.Regexp
	ok    func(text string) bool
}

// valueRules returns the rules for secrets that have a form of their own; 64 at most.
func valueRules() []rule {
	return []rule{
		{
			// A private key in PEM form; a truncated one extends to the end of the text.
			hints: []string{"private key"},
			re: lazyregexp.New(`(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?` +
				`(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----|\z))`),
		},
		{
			// The user and the password of a URL. A password may have an unescaped slash, unless the part
			// before the slash may be a port.
			hints: []string{"://"}, also: "@",
			re: lazyregexp.New(`[A-Za-z][A-Za-z0-9+.-]*://` +
				"([^\\s/?#@:\\[\"'`<>]*:(?:[^\\s/?#\"'`<>]+|" +
				"[^\\s/?#@\"'`<>]*[^\\s/?#@0-9\"'`<>][^\\s@\"'`<>]*))@"),
		},
		{
			// A header, as in the settings of git.
			hints: []string{"authorization:"},
			re:    lazyregexp.New(`(?i)authorization:[ \t]*((?:basic|bearer|token)[ \t]+[^\s"']+)`),
		},
		{
			// The address of a webhook, which is enough to use it.
			hints: []string{"hooks.slack.com/", "/api/webhooks/", ".webhook.office.com/"},
			re: lazyregexp.New(`(?:hooks\.slack\.com/(?:services|workflows|triggers)/|` +
				`/api/webhooks/[0-9]+/|\.webhook\.office\.com/webhookb2/)([\w/@-]{16,})`),
		},
		{
			// A key in a connection string of Azure, or in a signed address.
			hints: []string{"accountkey=", "sharedaccesskey=", "sharedaccesssignature=", "sig="},
			re: lazyregexp.New(`(?i)(?:AccountKey=|SharedAccessKey=|SharedAccessSignature=|[?&]sig=)` +
				`([\w+/=%.&-]{20,})`),
		},
		token(`[A-Za-z0-9_]{20,}`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
		token(`[\w.-]{16,}`, "glpat-", "gloas-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-",
			"glsoat-", "glimt-", "glagent-"),
		// Slack.
		token(`[A-Za-z0-9-]{10,}`, "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
		// Amazon Web Services.
		token(`[A-Z0-9]{16,}`, "AKIA", "ASIA"),
		// Google and others.
		token(`[\w-]{20,}`, "AIza", "ya29.", "GOCSPX-", "pypi-", "dckr_pat_"),
		// Stripe.
		token(`[A-Za-z0-9]{16,}`, "sk_live_", "sk_test_", "rk_live_", "rk_test_"),
		// npm, Hugging Face, Groq.
		token(`[A-Za-z0-9]{30,}`, "npm_", "hf_", "gsk_"),
		// DigitalOcean, Shopify, Linear, Replicate, xAI, Perplexity, NVIDIA, Vault, Tailscale, Postman,
		// Atlassian, Sentry, Grafana, New Relic, Databricks, Doppler, RubyGems, Figma, Supabase, Netlify,
		// CircleCI, Buildkite, Sourcegraph, Pulumi, PlanetScale, Fly, age.
		token(`[\w.=/+-]{20,}`, "dop_v1_", "doo_v1_", "dor_v1_", "shpat_", "shpca_", "shppa_", "shpss_",
			"lin_api_", "r8_", "xai-", "pplx-", "nvapi-", "hvs.", "hvb.", "hvr.", "tskey-", "PMAK-",
			"ATATT3", "ATBB", "sntrys_", "sntryu_", "glsa_", "glc_", "NRAK-", "dapi", "dp.pt.", "dp.st.",
			"rubygems_", "figd_", "sbp_", "nfp_", "CCIPAT_", "bkua_", "sgp_", "pul-",
			"pscale_tkn_", "pscale_pw_", "fo1_", "AGE-SECRET-KEY-1").withOK(looksRandom),
		// SendGrid.
		token(`[\w-]{16,}\.[\w-]{16,}`, "SG."),
		// JSON web tokens.
		token(`[\w-]{8,}\.[\w-]*\.[\w-]*(?:\.[\w-]*\.[\w-]*)?`, "eyJ"),
		// OpenAI, Anthropic and others. Ordinary words start with the same prefix.
		token(`[\w-]{16,}`, "sk-").withOK(looksRandom),
	}
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

// withOK returns r with a condition for matches.
func (r rule) withOK(ok func(text string) bool) rule {
	r.ok = ok
	return r
}

// looksRandom reports whether s has a run of letters and digits longer than in words and version
// numbers: 12 with a letter and a digit, or 24 of any.
func looksRandom(s string) bool {
	run, letter, digit := 0, false, false
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9':
			run, digit = run+1, true
		case isLower(c), isUpper(c):
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

// ruleSet are rules with an index of their hints.
type ruleSet struct {
	rules []rule
	// hints are groups of hints that start with the same two bytes; the first group is empty. groups
	// has the group of each pair of bytes.
	hints  [][]hint
	groups [1 << 16]uint8
}

// hint is a hint of the rule with the index rule.
type hint struct {
	text string
	rule int
}

// forms are the rules of valueRules. Their first use makes them, which keeps the start of a program
// fast.
var forms = sync.OnceValue(func() *ruleSet {
	set := &ruleSet{rules: valueRules(), hints: make([][]hint, 1)}
	for i, r := range set.rules {
		for _, text := range r.hints {
			group := &set.groups[uint16(text[0])<<8|uint16(text[1])]
			if *group == 0 {
				*group = uint8(len(set.hints))
				set.hints = append(set.hints, nil)
			}
			set.hints[*group] = append(set.hints[*group], hint{text, i})
		}
	}
	return set
})

// candidates returns the rules that have a hint in s, as a set of bits.
func (set *ruleSet) candidates(s string) (found uint64) {
	var pair uint16
	for i := range len(s) {
		pair = pair<<8 | uint16(lower(s[i]))
		group := set.groups[pair]
		if group == 0 {
			continue
		}
		for _, h := range set.hints[group] {
			if end := i - 1 + len(h.text); end <= len(s) && equalLower(s[i-1:end], h.text) {
				found |= 1 << h.rule
			}
		}
	}
	return found
}

// equalLower reports whether s in lower case is text, which has its length.
func equalLower(s, text string) bool {
	for i := range len(s) {
		if lower(s[i]) != text[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if isUpper(c) {
		c += 'a' - 'A'
	}
	return c
}

// HasSecret reports whether s contains a secret with a known form: a key with a well-known prefix,
// a private key, a JSON web token, a URL with a password, or the address of a webhook.
func HasSecret(s string) bool {
	_, found := forms().replace(s)
	return found
}

// replace replaces each secret in s by Mark, and reports whether it found one.
func (set *ruleSet) replace(s string) (string, bool) {
	changed := false
	for i, found := 0, set.candidates(s); found != 0; i, found = i+1, found>>1 {
		if found&1 == 0 {
			continue
		}
		if replaced, ok := set.rules[i].replace(s); ok {
			s, changed = replaced, true
		}
	}
	return s, changed
}

// replace replaces each secret that r finds in s by Mark, and reports whether it found one.
func (r rule) replace(s string) (string, bool) {
	if !strings.Contains(s, r.also) {
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
