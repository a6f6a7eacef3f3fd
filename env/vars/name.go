package vars

import (
	"strings"
	"sync"
)

// The words of names that hold secrets, in capitals. A word of a name is a run of letters and
// digits; a capital after a small letter starts another one. Digits at its end do not count.
const (
	// wholeWords make a name secret as whole words: inside other words they mean something else, as
	// in COMPAT, AUTHOR and COOKIECUTTER.
	wholeWords = `AUTH AUTHORIZATION BASICAUTH HTTPAUTH PROXYAUTH BEARER CONNSTR COOKIE COOKIES CRED
		CREDS DSN JWT JWTS MNEMONIC OTP PAT PATS PSK SALT SALTS TOTP`
	// lastWords make it secret also at the end of another word, as in SSHPASS, AUTHKEY, DBPWD and
	// ACCESSTOKENS, but not at its start, as in KEYBOARD, PASSENGER and TOKENIZER.
	lastWords = `KEY KEYS PASS PWD TOKEN TOKENS`
	// anyWords make it secret anywhere in a word, as in PGPASSWORD, CLIENTSECRETS and MYCREDENTIALS.
	anyWords = `CONNECTIONSTRING CREDENTIAL PASSCODE PASSPHRASE PASSWD PASSWORD SECRET WEBHOOK`
	// pairs make it secret as two whole words in a row.
	pairs = `CONNECTION_STRING CONNECTION_STRINGS CONN_STR SEED_PHRASE BW_SESSION OP_SESSION
		FASTLANE_SESSION`

	// otherWords end with or contain one of the words above, and mean something else.
	otherWords = `ASKPASS BYPASS COMPASS ENCOMPASS TRESPASS LESSKEY HOTKEY HOTKEYS PUBKEY PUBKEYS
		MONKEY DONKEY TURKEY HOCKEY JOCKEY WHISKEY SECRETARY SECRETARIAT PASSWORDLESS`
	// propertyWords are the last words of names of a property of a secret, such as its file.
	propertyWords = `ALGORITHM CHECKING DIR DIRECTORY FILE HELPER HOST LENGTH METHOD MODE NAME PATH
		PORT PROVIDER SIZE TIMEOUT TTL TYPE VERSION`
	// countWords mean that TOKENS are those of a language model, which are counted.
	countWords = `MAX MIN`
	// publicWords before KEY mean one that everybody may have.
	publicWords = `PUBLIC PUBLISHABLE`

	// harmlessNames would be secret by their words.
	harmlessNames = `PWD OLDPWD BUILDKITE_STEP_KEY BUILDKITE_GROUP_KEY OS_AUTH_URL`
	// gitKey is the start of the names of variables with names of git's settings.
	gitKey = "GIT_CONFIG_KEY_"
)

// wordUse is a set of the lists that have a word.
type wordUse uint8

const (
	secretWord   wordUse = 1 << iota // wholeWords, lastWords
	pairWord                         // pairs, as their second word
	otherWord                        // otherWords
	propertyWord                     // propertyWords
	countWord                        // countWords
	publicWord                       // publicWords
)

// nameTables are the lists above, made for lookups.
type nameTables struct {
	words           map[string]wordUse
	last, any       []string
	pairs, harmless map[string]bool
}

// names returns the tables. Their first use makes them, which keeps the start of a program fast.
var names = sync.OnceValue(func() *nameTables {
	set := func(list string) map[string]bool {
		members := make(map[string]bool)
		for _, word := range strings.Fields(list) {
			members[word] = true
		}
		return members
	}
	t := &nameTables{
		words: make(map[string]wordUse), last: strings.Fields(lastWords), any: strings.Fields(anyWords),
		pairs: set(pairs), harmless: set(harmlessNames),
	}
	for list, use := range map[string]wordUse{
		wholeWords: secretWord, lastWords: secretWord, otherWords: otherWord,
		propertyWords: propertyWord, countWords: countWord, publicWords: publicWord,
	} {
		for word := range set(list) {
			t.words[word] |= use
		}
	}
	for pair := range t.pairs {
		_, second, _ := strings.Cut(pair, "_")
		t.words[second] |= pairWord
	}
	return t
})

// IsSecretName reports whether name is that of a secret: a variable, a flag, a header, or a field
// of a configuration. It is if one of its words means a secret, such as KEY, TOKEN, PASSWORD or
// AUTH, in any case, unless its last word means a property of the secret, as in API_KEY_FILE, or
// name is one of a few that are known to be harmless, such as PWD.
func IsSecretName(name string) bool {
	t := names()
	var secret, tokens, counted bool
	var last wordUse
	prev := ""
	for rest := name; rest != ""; {
		var word string
		if word, rest = cutWord(rest); word == "" {
			continue
		}
		use := t.words[word]
		switch {
		case use&otherWord != 0, last&publicWord != 0 && strings.HasPrefix(word, "KEY"):
		case use&pairWord != 0 && t.pairs[prev+"_"+word]:
			secret = true
		case use&secretWord != 0 || t.contains(word):
			if strings.HasSuffix(word, "TOKENS") {
				tokens = true
			} else {
				secret = true
			}
		}
		counted = counted || use&countWord != 0
		last, prev = use, word
	}
	if !secret && (!tokens || counted) || last&propertyWord != 0 {
		return false
	}
	name = strings.ToUpper(name)
	return !t.harmless[name] && !strings.HasPrefix(name, gitKey)
}

// contains reports whether a part of word means a secret.
func (t *nameTables) contains(word string) bool {
	for _, end := range t.last {
		if strings.HasSuffix(word, end) {
			return true
		}
	}
	for _, part := range t.any {
		if len(part) <= len(word) && strings.Contains(word, part) {
			return true
		}
	}
	return false
}

// cutWord returns the first word of name in capitals, without digits at its end, and the rest of
// the name. The word is empty if name starts with none.
func cutWord(name string) (word, rest string) {
	i := 0
	for i < len(name) && isWordByte(name[i]) &&
		(i == 0 || !isUpper(name[i]) || !isLower(name[i-1])) {
		i++
	}
	end := i
	for end > 0 && '0' <= name[end-1] && name[end-1] <= '9' {
		end--
	}
	return strings.ToUpper(name[:end]), name[max(i, 1):]
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

// isWordByte reports whether c is part of a word: an ASCII letter or digit, or of a letter beyond.
func isWordByte(c byte) bool {
	return isUpper(c) || isLower(c) || '0' <= c && c <= '9' || c >= 0x80
}
