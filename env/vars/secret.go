package vars

import (
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Mark replaces a secret.
const Mark = "[REDACTED]"

// A rule finds one kind of secret behind a hint: the text of the group of re, which is anchored at
// the hint, if ok is nil or accepts it. Hints are in lower case, of two bytes at least, and much
// faster to find than re.
type rule struct {
	// name is the kind of secret, for people.
	name  string
	hints []string
	// begins reports whether a secret may begin behind a byte, which is 0 at the start of the text;
	// nil means behind each.
	begins func(before byte) bool
	// quick, if set, reports whether re may match, in much less time.
	quick func(text string) bool
	re    func() *regexp.Regexp
	// end is used in place of re: it returns the end of a secret that begins with the hint, or 0.
	end func(text string) int
	ok  func(text string) bool
}

// valueRules returns the rules for secrets that have a form of their own.
func valueRules() []rule {
	return []rule{
		{
			name: "private key", hints: []string{"-----begin "},
			end: func(text string) int { end, _ := PrivateKey(text); return end },
		},
		{
			// The user and the password. A password may have an unescaped slash, unless the part before the
			// slash may be a port.
			name: "password of a URL", hints: []string{"://"}, begins: isSchemeByte,
			quick: func(text string) bool { return strings.IndexByte(text[:min(1024, len(text))], '@') > 0 },
			re: lazyregexp.New("^://([^\\s/?#@:\\[\"'`<>]*:(?:[^\\s/?#\"'`<>]+|" +
				"[^\\s/?#@\"'`<>]*[^\\s/?#@0-9\"'`<>][^\\s@\"'`<>]*))@"),
		},
		{
			// As in the settings of git.
			name: "authorization header", hints: []string{"authorization:"},
			re: lazyregexp.New(`(?i)^authorization:[ \t]*((?:basic|bearer|token)[ \t]+[^\s"']+)`),
		},
		{
			// Its address is enough to use it.
			name:  "webhook",
			hints: []string{"hooks.slack.com/", "/api/webhooks/", ".webhook.office.com/"},
			re: lazyregexp.New(`^(?:hooks\.slack\.com/(?:services|workflows|triggers)/|` +
				`/api/webhooks/[0-9]+/|\.webhook\.office\.com/webhookb2/)([\w/@-]{16,})`),
		},
		{
			// In a connection string, or in a signed address.
			name: "Azure key",
			hints: []string{
				"accountkey=", "sharedaccesskey=", "sharedaccesssignature=", "?sig=", "&sig=",
			},
			re: lazyregexp.New(`(?i)^(?:AccountKey=|SharedAccessKey=|SharedAccessSignature=|[?&]sig=)` +
				`([\w+/=%.&-]{20,})`),
		},
		token("GitHub token", `[A-Za-z0-9_]{20,}`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
			"github_pat_"),
		token("GitLab token", `[\w.-]{16,}`, "glpat-", "gloas-", "gldt-", "glrt-", "glcbt-", "glptt-",
			"glft-", "glsoat-", "glimt-", "glagent-"),
		token("Slack token", `[A-Za-z0-9-]{10,}`, "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-",
			"xapp-"),
		token("AWS key", `[A-Z0-9]{16,}`, "AKIA", "ASIA"),
		token("Google key", `[\w-]{20,}`, "AIza", "ya29.", "GOCSPX-"),
		token("PyPI token", `[\w-]{20,}`, "pypi-"),
		token("Docker token", `[\w-]{20,}`, "dckr_pat_"),
		token("Stripe key", `[A-Za-z0-9]{16,}`, "sk_live_", "sk_test_", "rk_live_", "rk_test_"),
		token("npm token", `[A-Za-z0-9]{30,}`, "npm_"),
		token("Hugging Face token", `[A-Za-z0-9]{30,}`, "hf_"),
		token("Groq key", `[A-Za-z0-9]{30,}`, "gsk_"),
		// DigitalOcean, Shopify, Linear, Replicate, xAI, Perplexity, NVIDIA, Vault, Tailscale, Postman,
		// Atlassian, Sentry, Grafana, New Relic, Databricks, Doppler, RubyGems, Figma, Supabase, Netlify,
		// CircleCI, Buildkite, Sourcegraph, Pulumi, PlanetScale, Fly, age.
		token("key", `[\w.=/+-]{20,}`, "dop_v1_", "doo_v1_", "dor_v1_", "shpat_", "shpca_", "shppa_",
			"shpss_", "lin_api_", "r8_", "xai-", "pplx-", "nvapi-", "hvs.", "hvb.", "hvr.", "tskey-",
			"PMAK-", "ATATT3", "ATBB", "sntrys_", "sntryu_", "glsa_", "glc_", "NRAK-", "dapi", "dp.pt.",
			"dp.st.", "rubygems_", "figd_", "sbp_", "nfp_", "CCIPAT_", "bkua_", "sgp_", "pul-",
			"pscale_tkn_", "pscale_pw_", "fo1_", "AGE-SECRET-KEY-1").withOK(looksRandom),
		token("SendGrid key", `[\w-]{16,}\.[\w-]{16,}`, "SG."),
		{
			name: "JSON web token", hints: []string{"eyj"}, begins: isWordStart,
			quick: func(text string) bool {
				n := 0
				for n < min(1024, len(text)) && (isWordByte(text[n]) || text[n] == '_' || text[n] == '-') {
					n++
				}
				return n < len(text) && text[n] == '.'
			},
			re: lazyregexp.New(`^(eyJ[\w-]{8,1000}\.[\w-]*\.[\w-]*(?:\.[\w-]*\.[\w-]*)?)`),
		},
		// OpenAI, Anthropic and others. Ordinary words start with the same prefix.
		token("API key", `[\w-]{16,}`, "sk-").withOK(looksRandom),
	}
}

func isSchemeByte(c byte) bool {
	return isDigit(c) || isLower(c) || isUpper(c) || c == '+' || c == '.' || c == '-'
}

// isWordStart reports whether a word may begin behind a byte.
func isWordStart(before byte) bool {
	return !isDigit(before) && !isLower(before) && !isUpper(before)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// token returns the rule for keys with one of the prefixes of their issuer.
func token(name, tail string, prefixes ...string) rule {
	var hints, alternatives []string
	for _, p := range prefixes {
		hints = append(hints, strings.ToLower(p))
		alternatives = append(alternatives, regexp.QuoteMeta(p))
	}
	return rule{
		name: name, hints: hints, begins: isWordStart,
		re: lazyregexp.New(`^((?:` + strings.Join(alternatives, "|") + `)` + tail + `)`),
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
	// hints are groups of hints that start with the same two bytes; the first group is empty. groups
	// has the group of each pair of bytes.
	hints  [][]hint
	groups [1 << 16]uint8
}

// hint is a hint of a rule.
type hint struct {
	text string
	rule rule
}

// forms are the rules of valueRules. Their first use makes them, which keeps the start of a program
// fast.
var forms = sync.OnceValue(func() *ruleSet {
	set := &ruleSet{hints: make([][]hint, 1)}
	for _, r := range valueRules() {
		for _, text := range r.hints {
			group := &set.groups[uint16(text[0])<<8|uint16(text[1])]
			if *group == 0 {
				*group = uint8(len(set.hints))
				set.hints = append(set.hints, nil)
			}
			set.hints[*group] = append(set.hints[*group], hint{text, r})
		}
	}
	return set
})

// next returns the first secret in s that does not begin before from, and its kind; end is 0
// without one.
func (set *ruleSet) next(s string, from int) (start, end int, kind string) {
	var pair uint16
	// rejected are the ends of the last texts that have no secret of a kind.
	var rejected map[string]int
	reject := func(kind string, end int) {
		if rejected == nil {
			rejected = make(map[string]int)
		}
		rejected[kind] = end
	}
	for i := from; i < len(s); i++ {
		pair = pair<<8 | uint16(lower(s[i]))
		group := set.groups[pair]
		if group == 0 || i == from {
			continue
		}
		at := i - 1
		before := byte(0)
		if at > from {
			before = s[at-1]
		}
		for _, h := range set.hints[group] {
			if end := at + len(h.text); end > len(s) || !equalLower(s[at:end], h.text) ||
				h.rule.begins != nil && !h.rule.begins(before) {
				continue
			}
			r := h.rule
			if at < rejected[r.name] || r.quick != nil && !r.quick(s[at:]) {
				continue
			}
			m := r.match(s[at:])
			if m == nil {
				continue
			}
			if r.ok != nil && !r.ok(s[at+m[2]:at+m[3]]) {
				reject(r.name, at+m[3])
				continue
			}
			return at + m[2], at + m[3], r.name
		}
	}
	return 0, 0, ""
}

// match returns the place of a secret whose hint s starts with, as the last two of four; nil
// without one.
func (r rule) match(s string) []int {
	if r.end == nil {
		return r.re().FindStringSubmatchIndex(s)
	}
	if end := r.end(s); end > 0 {
		return []int{0, end, 0, end}
	}
	return nil
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
	var b strings.Builder
	done := 0
	for from := 0; ; {
		start, end, _ := set.next(s, from)
		if end == 0 {
			break
		}
		if from = end; s[start:end] == Mark {
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
