package vars_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Keys are concatenated so that no scanner takes this file for a leak.
const (
	openaiKey = "sk-" + "proj-Ab3dEf6hIj9kLm2nOp5q"
	githubKey = "ghp" + "_0123456789abcdefghijklmnopqrstuvwxyz"
	awsKey    = "AKIA" + "ABCDEFGHIJ234567"
	jwt       = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
	pem       = "-----BEGIN OPENSSH PRIVATE" + " KEY-----\nAAAA\nBBBB\n-----END OPENSSH PRIVATE" +
		" KEY-----"
)

func TestValue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, value string
		want        bool
	}{
		{"openai", openaiKey, true},
		{"openai, old form", "sk-" + strings.Repeat("aB3", 16), true},
		{"anthropic", "sk-" + "ant-api03-" + strings.Repeat("x_Y-z9Q1w2E3r4T5", 5), true},
		{"github", githubKey, true},
		{"github server token", "ghs" + "_0123456789abcdefghijklmnopqrstuvwxyz", true},
		{"github fine-grained", "github" + "_pat_11ABCDEFG0aBcDeFgHiJkL_mnopq", true},
		{"gitlab", "glpat" + "-abcDEF0123456789_-xy", true},
		{"slack bot", "xoxb" + "-123456789012-abcdefABCDEF", true},
		{"slack user", "xoxp" + "-123456789012-abcdefABCDEF", true},
		{"aws", awsKey, true},
		{"google token", "ya29" + ".a0AfB_byC0123456789abcdef", true},
		{"docker hub", "dckr" + "_pat_0123456789abcdefABCDE", true},
		{"stripe", "sk" + "_live_0123456789abcdefABCDE", true},
		{"npm", "npm" + "_0123456789abcdefABCDE0123456789abcdef", true},
		{"google", "AIza" + "SyA0123456789abcdefghijklmnopqrstuv", true},
		{"json web token", jwt, true},
		{"unsigned token", "eyJ" + "hbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", true},
		{"encrypted token", "eyJ" + "hbGciOiJkaXIifQ..aXY.Y2lwaGVy.dGFn", true},
		{"private key", pem, true},
		{"private key, cut off", pem[:50], true},
		{"pgp private key", "-----BEGIN PGP PRIVATE" + " KEY BLOCK-----\nx", true},
		{"encrypted key", "-----BEGIN RSA PRIVATE" + " KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: " +
			"AES-128-CBC,0123\n\nMIIEabcdMIIEabcd\nrest of it", true},
		{"escaped key", `"-----BEGIN PRIVATE` + ` KEY-----\nMIIEabcdMIIEabcd\nab\n-----END PRIVATE` +
			` KEY-----\n"`, true},
		{"found by grep", "-----BEGIN PRIVATE" + " KEY-----\nkey.pem-12-MIIEabcdMIIEabcdMIIEabcdMIIE" +
			"abcdMIIEabcd\n", true},
		{"digitalocean", "dop" + "_v1_0123456789abcdef0123456789abcdef", true},
		{"vault", "hvs" + ".CAESIJlU02LQZq4Ab3dEf6hIj9kL", true},
		{"shopify", "shpat" + "_0123456789abcdef0123456789abcdef", true},
		{"header", "AUTHORIZATION: basic eDpwYXNz", true},
		{"header of git", "http.extraheader=Authorization: Bearer abc", true},
		{"slack webhook", "https://hooks.slack" + ".com/services/T0A/B0A/0123456789abcdefAB", true},
		{"discord webhook", "https://discord.com/api" + "/webhooks/12345/0123456789abcdef_AB", true},
		{"azure storage", "AccountName=a;AccountKey=" + "0123456789abcdefABCDEF==;E=x", true},
		{"signed address", "https://a.blob/b?sv=2024&sig=" + "0123456789abcdefABCDEF%3D", true},
		{"within text", "key=" + githubKey + ";", true},
		{"url", "postgres://app:hunter2@db:5432/app", true},
		{"url without user", "redis://:hunter2@cache", true},
		{"url with at sign in password", "https://u:p@ss@host/", true},
		{"url with slash in password", "https://u:p/ss@host/", true},
		{"url with token as user", "https://" + githubKey + "@github.com/a/b", true},

		{"empty", "", false},
		{"mark", vars.Mark, false},
		{"path", "/usr/local/bin:/usr/bin:/home/me/.nvm/versions/node/v22.1.0/bin", false},
		{"url with user only", "ssh://git@github.com/a/b", false},
		{"url with port", "http://proxy:8080/@scope/name", false},
		{"url with address", "http://[::1]:8080/@vite", false},
		{"cluster address", "tcp://10.0.0.1:443", false},
		{"scp-like", "git@github.com:a/b.git", false},
		{"public key", "-----BEGIN PUBLIC KEY-----\nAAAA", false},
		{"a mention of a private key", "s == \"-----BEGIN RSA PRIVATE" + " KEY-----\" {\n", false},
		{"a key that is left out", "-----BEGIN RSA PRIVATE" + " KEY-----\n...\n-----END RSA PRIVATE" +
			" KEY-----", false},
		{"words after sk-", "/opt/sk-learn-environment-tools", false},
		{"disk name", "/dev/disk-0123456789abcdef0123", false},
		{"dated directory", "/opt/sk-release-2024-11-05", false},
		{"short", "sk-abc", false},
		{"address", "https://me@example.com:8443/a?b=c@d", false},
		{"design", "design=0123456789abcdef0123456789abcdef", false},
		{"words after a prefix", "doppler-xai-words-that-are-not-a-key", false},
		{"prompt for a header", "Authorization: none", false},
		{"colours", "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33", false},
		{"hash", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", false},
		{"prompt", "[sudo] password for %u: ", false},
		{"assignment", "X_TOKEN=abc", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := vars.HasSecret(tt.value); got != tt.want {
				t.Errorf("Value(%q) = %v, want %v", tt.value, got, tt.want)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	const x = vars.Mark
	tests := []struct{ name, in, want string }{
		{"nothing", "ls -l /tmp", "ls -l /tmp"},
		{"key in text", "use " + openaiKey + ", please", "use " + x + ", please"},
		{"key in two parts", "SG" + ".0123456789abcdefABCDEF.0123456789abcdefABCDEF", x},
		{"two keys", githubKey + " " + awsKey, x + " " + x},
		{"two keys side by side", githubKey + "," + githubKey, x + "," + x},
		{"private key", "a\n" + pem + "\nb", "a\n" + x + "\nb"},
		{"private key, cut off", "a\n" + pem[:50], "a\n" + x},
		{"key behind a private key", pem + openaiKey, x + x},
		{"key laid open by a replacement", awsKey + githubKey, x + x},
		{"url", "git clone https://me:pw@host/x.git", "git clone https://" + x + "@host/x.git"},
		{"url with a key as user", "https://" + githubKey + ":x-oauth-basic@host", "https://" + x +
			"@host"},
		{"two urls", "a://u:p@h b://u:p@h", "a://" + x + "@h b://" + x + "@h"},
		{"assignment", "export NPM_TOKEN=abc; make", "export NPM_TOKEN=" + x + " make"},
		{"assignment, quoted", `DB_PASSWORD="a \" b" make`, "DB_PASSWORD=" + x + " make"},
		{"assignment, quote left open", `DB_PASSWORD='a b`, "DB_PASSWORD=" + x},
		{"assignment, in pieces", `DB_PASSWORD=a'b c'"d e"\ f make`, "DB_PASSWORD=" + x + " make"},
		{"assignment behind another", "--env=X_TOKEN=abc", "--env=X_TOKEN=" + x},
		{"assignment without underscore", "PGPASSWORD=abc psql", "PGPASSWORD=" + x + " psql"},
		{"empty assignment", "X_TOKEN= make", "X_TOKEN= make"},
		{"short name", "PASS=abc make", "PASS=" + x + " make"},
		{"camel case", `{"apiKey":"abc"}`, `{"apiKey":` + x + `}`},
		{"property", "spring.datasource.password=abc", "spring.datasource.password=" + x},
		{"comparison", `test "$key"==x && key==y`, `test "$key"==x && key==y`},
		{
			"file", "open /etc/ssl/server.key: permission denied",
			"open /etc/ssl/server.key: permission denied",
		},
		{"file of a secret", "--key-file=/k --pass-dir=/p", "--key-file=/k --pass-dir=/p"},
		{"words", "author: me, pattern=x path: /a PWD=/b", "author: me, pattern=x path: /a PWD=/b"},
		{"scope", "Key::new, token::Kind", "Key::new, token::Kind"},
		{"other assignment", "CGO_ENABLED=0 go test", "CGO_ENABLED=0 go test"},
		{"header", "Authorization: Bearer abc def", "Authorization: " + x},
		{"header with a key and more", "X-Api-Key: " + githubKey + " abc", "X-Api-Key: " + x},
		{"header in a command", `curl -H "X-Api-Key:abc" http://h`, `curl -H "X-Api-Key:` + x +
			`" http://h`},
		{"json", `{"db_password": "a b", "n": 1}`, `{"db_password": ` + x + `, "n": 1}`},
		{"invalid utf-8", "\xff" + githubKey + "\x00", "\xff" + x + "\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := vars.Redact(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Redact (-want +got):\n%s", diff)
			}
			if again := vars.Redact(got); again != got {
				t.Errorf("Redact again gives %q, want no change from %q", again, got)
			}
		})
	}
}

// TestRedactNames proves that a value is redacted behind every name of a secret.
func TestRedactNames(t *testing.T) {
	t.Parallel()
	for _, name := range tableNames(t, "secret-names.tsv") {
		for _, name := range []string{name, strings.ToLower(name), strings.ReplaceAll(name, "_", "-")} {
			for _, between := range []string{"=", ": ", `":"`} {
				if got := vars.Redact(name + between + "value"); strings.Contains(got, "value") {
					t.Errorf("Redact leaves %q", got)
				}
			}
			if got := vars.RedactArgv([]string{"--" + strings.ToLower(name), "value"}); got[1] != vars.Mark {
				t.Errorf("RedactArgv leaves %q", got)
			}
		}
	}
}

func TestRedactArgv(t *testing.T) {
	t.Parallel()
	const x = vars.Mark
	tests := []struct {
		name     string
		in, want []string
	}{
		{"none", nil, []string{}},
		{"plain", []string{"go", "test", "./..."}, []string{"go", "test", "./..."}},
		{"flag and value", []string{"x", "--password", "a b", "y"}, []string{"x", "--password", x, "y"}},
		{"flag with value", []string{"x", "--api-key=a b"}, []string{"x", "--api-key=" + x}},
		{"value like a flag", []string{"x", "--token", "-abc"}, []string{"x", "--token", x}},
		{"variable for a container", []string{"docker", "run", "-eX_TOKEN=a b"}, []string{
			"docker", "run",
			"-eX_TOKEN=" + x,
		}},
		{"two in one", []string{"X_TOKEN=a,Y_TOKEN=b"}, []string{"X_TOKEN=" + x}},
		{"key", []string{"echo", githubKey}, []string{"echo", x}},
		{"script", []string{"sh", "-c", "export X_TOKEN=abc && make"}, []string{
			"sh", "-c",
			"export X_TOKEN=" + x + " && make",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := append([]string(nil), tt.in...)
			if diff := cmp.Diff(tt.want, vars.RedactArgv(tt.in)); diff != "" {
				t.Errorf("RedactArgv (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.in); diff != "" {
				t.Errorf("RedactArgv changed its argument:\n%s", diff)
			}
		})
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range []string{
		"", vars.Mark, vars.Mark + vars.Mark, openaiKey, githubKey, awsKey, jwt, pem, pem + openaiKey,
		"a://u:p@h", "a://[REDACTED]:x@h", `X_TOKEN="a"b'c'\ d`, "X_TOKEN=[REDACTED]x",
		"Authorization: Basic abc\ncookie:'a",
		"password: token= secret_x=", "\xff\xfe", "token=\\", `secret:"\`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := vars.Redact(s)
		if twice := vars.Redact(once); twice != once {
			t.Errorf("Redact(%q) = %q, and again %q", s, once, twice)
		}
		if vars.HasSecret(once) {
			t.Errorf("Redact(%q) = %q, which still contains a secret", s, once)
		}
		vars.RedactArgv([]string{s, s})
		vars.IsSecretName(s)
	})
}

func BenchmarkRedact(b *testing.B) {
	text := strings.Repeat("go test -run TestX ./... && FOO=bar make -C /srv/build install\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		vars.Redact(text)
	}
}

func TestFindSecrets(t *testing.T) {
	t.Parallel()
	random := "q8Zr" + "T3vLm9Xw2Kp7"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "x = 1\n", ""},
		{"forms", "a " + githubKey + " b " + awsKey, "GitHub token " + githubKey + "; AWS key " + awsKey},
		{
			"side by side", githubKey + "," + githubKey,
			"GitHub token " + githubKey + "; GitHub token " + githubKey,
		},
		{"a private key", "a\n" + pem + "\nb", "private key " + pem},
		{"a URL", "https://me:pw@host/x", "password of a URL me:pw"},
		{"a URL with a key", "https://" + githubKey + ":x@host", "password of a URL " + githubKey + ":x"},
		{"assigned", "DB_PASSWORD=" + random, "DB_PASSWORD " + random},
		{"in quotes", `password = "` + random + `"`, "password " + random},
		{"in JSON", `{"apiKey": "` + random + `", "n": 1}`, "apiKey " + random},
		{"in YAML", "db_password: " + random + "\n", "db_password " + random},
		{"of an index", `env["API_TOKEN"] = '` + random + `'`, "API_TOKEN " + random},
		{"by := of a language", `token := "` + random + `"`, "token " + random},
		{"two", "A_TOKEN=" + random + " B_TOKEN=" + random, "A_TOKEN " + random + "; B_TOKEN " + random},
		{"a key that is assigned", "X_TOKEN=" + githubKey, "GitHub token " + githubKey},
		{"a word", "password = correct-horse-battery-staple", ""},
		{"a call", "token = read_token_from_environment_v2(x)", ""},
		{"a short one", "password=hunter2", ""},
		{"another name", "checksum = " + random, ""},
		{"a path", "password_file=/run/secrets/0123456789abcdef", ""},
		{"a comparison", "if token == " + random + " {", "token " + random},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range vars.FindSecrets(tt.text) {
				got = append(got, s.Kind+" "+tt.text[s.Start:s.End])
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzFindSecrets(f *testing.F) {
	f.Add("a=" + githubKey + " https://a:b@c password=0123456789abcdefgh " + pem)
	f.Fuzz(func(t *testing.T, s string) {
		at := 0
		for _, found := range vars.FindSecrets(s) {
			if found.Start < at || found.End <= found.Start || found.End > len(s) || found.Kind == "" {
				t.Fatalf("%q has %+v behind %d", s, found, at)
			}
			at = found.End
		}
	})
}

// benchmarkText is of source code and of the output of programs.
var benchmarkText = strings.Repeat("go test -run TestX ./... && FOO=bar make -C /srv install\n"+
	"	if err := json.Unmarshal(data, &result); err != nil {\n"+
	"2026-01-31T10:00:00Z INFO request method=GET url=https://example.com/api/v1/users?id=12345 "+
	"status=200 task-runner=a1b2c3\n"+
	`      "resolved": "https://registry.npmjs.org/acorn/-/acorn-8.14.0.tgz",`+"\n"+
	`      "integrity": "sha512-cl669nCJTZBsL97OF4kUQm5g5hC2uihk0NxY3WENAC0TYdILVkAyHymAntgx+"`+"\n",
	2000)

// BenchmarkFindSecrets compares the search with a copy of the text.
func BenchmarkFindSecrets(b *testing.B) {
	b.SetBytes(int64(len(benchmarkText)))
	for b.Loop() {
		if found := vars.FindSecrets(benchmarkText); len(found) > 0 {
			b.Fatalf("%+v", found[0])
		}
	}
}
