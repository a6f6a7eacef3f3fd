package redact_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy/redact"
)

// Keys are concatenated so that no scanner takes this file for a leak.
const (
	githubKey = "ghp" + "_0123456789abcdefghijklmnopqrstuvwxyz"
	otherKey  = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
	pem       = "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE" + " KEY-----"
	several   = "first line\nsecond line\nthird line"
	longLines = "-----BEGIN SOMETHING-----\nqwertyuiopasdfghjkl\nshort\nzxcvbnmqwertyuiop\n-----END--"
)

var values = map[string]string{
	"DEPLOY_TOKEN": "correct horse", "LONG_TOKEN": "correct horse battery", "SHORT": "abc",
	"CERTIFICATE": several, "BUNDLE": longLines,
}

func redactor() *redact.Redactor { return redact.New(redact.Patterns, values) }

// TestText redacts texts, of which the digests in markers are cut off.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"a correct horse b":          "a [redacted: DEPLOY_TOKEN] b",
		"correct horse battery":      "[redacted: LONG_TOKEN]",
		"correct horsecorrect horse": "[redacted: DEPLOY_TOKEN][redacted: DEPLOY_TOKEN]",
		"abc":                        "abc",
		"x " + several + " y":        "x [redacted: CERTIFICATE] y",
		"x " + longLines + " y":      "x [redacted: BUNDLE] y",
		"1\t" + strings.ReplaceAll(longLines, "\n", "\n2\t"): "1\t-----BEGIN SOMETHING-----\n2\t" +
			"[redacted: BUNDLE line 2]\n2\tshort\n2\t[redacted: BUNDLE line 4]\n2\t-----END--",
		"key " + githubKey + ".":         "key [redacted: GitHub token …].",
		"a\n" + pem + "\nb":              "a\n[redacted: private key …]\nb",
		pem[:36] + "\nof it is\nnot one": pem[:36] + "\nof it is\nnot one",
		pem[:32] + strings.Repeat("\nMIIEabcdMIIEabcd", 3) + "\n*** cut ***\n": "[redacted: " +
			"private key …]\n*** cut ***\n",
		"https://me:correct horse@x":     "https://me:[redacted: DEPLOY_TOKEN]@x",
		"https://me:" + githubKey + "@x": "https://[redacted: password of a URL …]@x",
		"X_TOKEN=Zq8r" + "T3vLm9Xw2Kp7":  "X_TOKEN=[redacted: X_TOKEN …]",
	} {
		got := redactor().Text(text)
		if without := withoutDigests(got); without != want {
			t.Errorf("%q is redacted to %q, want %q", text, without, want)
		}
		if again := redactor().Text(got); again != got {
			t.Errorf("%q is redacted to %q", got, again)
		}
		if back, err := redactor().Restore(text, text); err != nil || back != text {
			t.Errorf("%q is restored to %q, %v", text, back, err)
		}
	}
	if got := redact.New(redact.Values, values).Text(githubKey + " correct horse"); got !=
		githubKey+" [redacted: DEPLOY_TOKEN]" {
		t.Errorf("values: %q", got)
	}
	off := redact.New(redact.Off, values)
	if got := off.Text(githubKey + " correct horse"); got != githubKey+" correct horse" {
		t.Errorf("off: %q", got)
	}
}

// withoutDigests replaces the digests at the ends of markers by "…".
func withoutDigests(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "[redacted: ")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, _ := strings.Cut(rest, "]")
		if i := len(name) - 4; i > 0 && strings.Trim(name[i:], "0123456789abcdef") == "" {
			name = name[:i] + "…"
		}
		b.WriteString("[redacted: " + name + "]")
		s = rest
	}
}

// TestRestore edits texts and puts their secrets back.
func TestRestore(t *testing.T) {
	r := redactor()
	marker := r.Text(githubKey)
	two := "a = " + githubKey + "\nb = " + otherKey + "\nc = correct horse\n" + pem + "\n"
	edited := strings.Replace(r.Text(two), "b = ", "x\nbb = ", 1)
	if edited == two || strings.Contains(edited, "ghp_") {
		t.Fatal(edited)
	}
	got, err := r.Restore(edited, two)
	if want := strings.Replace(two, "b = ", "x\nbb = ", 1); err != nil || got != want {
		t.Errorf("%v, %q", err, got)
	}
	for name, tt := range map[string]struct{ edited, original, want string }{
		"moved":              {"b: " + marker, "a: " + githubKey, "b: " + githubKey},
		"copied":             {marker + marker, githubKey, githubKey + githubKey},
		"removed":            {"nothing", githubKey, "nothing"},
		"no secret":          {"x", "y", "x"},
		"of another file":    {marker, "y", "stands for no secret of this file"},
		"of another secret":  {marker, otherKey, "stands for no secret of this file"},
		"invented":           {"[redacted: X]", "y", "stands for no secret of this file"},
		"literal":            {"a [redacted: X]", "b [redacted: X]", "a [redacted: X]"},
		"literal and secret": {marker, marker + githubKey, "stands for more than one text"},
		"a broken end":       {strings.TrimSuffix(marker, "]") + ")", githubKey, "was changed"},
		"a broken start":     {strings.TrimPrefix(marker, "[redacted: "), githubKey, "was changed"},
		"other brackets":     {"(" + strings.Trim(marker, "[]") + ")", githubKey, "was changed"},
	} {
		got, err := r.Restore(tt.edited, tt.original)
		var bad *redact.MarkerError
		switch {
		case errors.As(err, &bad):
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || got != tt.want:
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestNumberedLines finds the marker of a private key also in lines with numbers.
func TestNumberedLines(t *testing.T) {
	r := redactor()
	var numbered strings.Builder
	n := 9
	for line := range strings.SplitSeq(pem, "\n") {
		fmt.Fprintf(&numbered, "%d | %s\n", n, line)
		n++
	}
	_, shown, _ := strings.Cut(r.Text(numbered.String()), "| ")
	if shown != r.Text(pem)+"\n" {
		t.Errorf("%q and %q", shown, r.Text(pem))
	}
}

// written passes a text through a Writer in two pieces.
func written(r *redact.Redactor, pieces ...string) string {
	var b strings.Builder
	w := r.NewWriter(func(p []byte) { b.Write(p) })
	for _, p := range pieces {
		w.Write([]byte(p))
	}
	w.Close()
	return b.String()
}

// TestWriter splits texts at every byte.
func TestWriter(t *testing.T) {
	r := redactor()
	for _, text := range []string{
		"", "a", "a\nb\n", "x correct horse battery y\nz", "k " + githubKey + " l\n" + otherKey,
		"a\n" + pem + "\nb\n", pem, "x\n" + several + "\ny", "x first line\nsecond\n", several + several,
		"X_TOKEN=\"Zq8r" + "T3vLm9Xw2Kp7\"\n", "-----BEGIN CERTIFICATE-----\nabc\n", pem[:40],
		"a\rcorrect horse\rb", pem[:36] + " {\nMIIEabcdMIIEabcd\n",
		pem[:32] + "\nMIIEabcdMIIEabcd\n!\nb",
		"5 | " + strings.ReplaceAll(pem, "\n", "\n12 | ") + "\nb\n",
		strings.ReplaceAll(pem, "\n", `\n`) + "x\n", "https://u:pass@h\n",
	} {
		want := r.Text(text)
		for i := range text {
			if got := written(r, text[:i], text[i:]); got != want {
				t.Fatalf("%q split at %d is %q, want %q", text, i, got, want)
			}
		}
		pieces := strings.Split(text, "")
		if got := written(r, pieces...); got != want {
			t.Errorf("%q in bytes is %q, want %q", text, got, want)
		}
	}
}

// TestWriterPassesLinesOn checks that whole lines are not held back.
func TestWriterPassesLinesOn(t *testing.T) {
	got := ""
	w := redactor().NewWriter(func(p []byte) { got += string(p) })
	for _, step := range [][2]string{
		{"a", ""},
		{"b\nc", "ab\n"},
		{"\r", "ab\nc\r"},
		{"-----BEGIN CERTIFICATE-----\nx\n", "ab\nc\r-----BEGIN CERTIFICATE-----\nx\n"},
	} {
		w.Write([]byte(step[0]))
		if got != step[1] {
			t.Errorf("after %q: %q", step[0], got)
		}
	}
}

// TestWriterLong redacts long lines, and a private key that does not end.
func TestWriterLong(t *testing.T) {
	r := redactor()
	filler := strings.Repeat("some words, ", 10_000)
	for _, text := range []string{
		filler + githubKey + " " + filler,
		filler + "correct horse" + filler + otherKey,
		strings.Repeat("x ", 40_000) + githubKey + " " + strings.Repeat("y ", 10_000) + "\n" + githubKey,
	} {
		for _, size := range []int{1 << 10, 7777, 64 << 10, 1 << 20} {
			var pieces []string
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			if got := written(r, pieces...); got != r.Text(text) {
				t.Errorf("pieces of %d bytes: %d bytes, want %d", size, len(got), len(r.Text(text)))
			}
		}
	}
	for at := range 700 { // around the place where a line is cut
		text := strings.Repeat("x ", 4<<10) + strings.Repeat("y ", 28<<10-350) + strings.Repeat("z", at) +
			" API_TOKEN=\"Zq8r" + "T3vLm9Xw2Kp7\" " + strings.Repeat("v ", 8<<10)
		if got := written(r, text[:64<<10+1], text[64<<10+1:]); got != r.Text(text) {
			t.Fatalf("a name %d bytes before the cut: %q", at, got[len(got)-17_000:len(got)-16_000])
		}
	}
	line := strings.Repeat("MIIEabcd", 8) + "\n"
	body := strings.Repeat(line, 5000)
	begin := "-----BEGIN RSA PRIVATE" + " KEY-----\n"
	for _, end := range []string{"", "-----END RSA PRIVATE" + " KEY-----\nafter\n"} {
		pieces := slices.Concat([]string{"a\n", begin}, strings.SplitAfter(body, "\n"), []string{end})
		got := written(r, pieces...)
		want := "a\n[redacted: private key …]"
		if end != "" {
			want += "\nafter\n"
		}
		if withoutDigests(got) != want {
			t.Errorf("a long key is %d bytes: %.200q", len(got), got)
		}
	}
}

// TestForms finds a value as other programs write it.
func TestForms(t *testing.T) {
	const secret = "pa\"ss\\wo&rd\n1234"
	r := redact.New(redact.Values, map[string]string{"X": secret})
	for _, text := range []string{
		secret, "pa\"ss\\wo&rd\r\n1234", `pa\"ss\\wo&rd\n1234`, `pa\"ss\\wo\u0026rd\n1234`,
	} {
		if got := r.Text("a " + text + " b"); got != "a [redacted: X] b" {
			t.Errorf("%q: %s", text, got)
		}
		if back, err := r.Restore("b [redacted: X]", "a "+text); err != nil || back != "b "+text {
			t.Errorf("%q is restored to %q, %v", text, back, err)
		}
	}
}

// TestWriterControls finds secrets that are divided by controls of a terminal.
func TestWriterControls(t *testing.T) {
	const red, end = "\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"
	for text, want := range map[string]string{
		red + "ghp_" + end + githubKey[4:] + "\n": "[redacted: GitHub token …]\n",
		"correct" + red + " horse" + end + "\nb":  "[redacted: DEPLOY_TOKEN]\nb",
		"a " + red + "correct horse" + end + "\n": "a " + red + "[redacted: DEPLOY_TOKEN]" +
			end + "\n",
		red + "nothing" + end + "\n":                     red + "nothing" + end + "\n",
		"\x1b]0;title\acorr\x00ect\b \x1b(Bhorse\x1b7\n": "[redacted: DEPLOY_TOKEN]\n",
	} {
		if got := withoutDigests(written(redactor(), text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestWriterLongValue splits a long value in a long line.
func TestWriterLongValue(t *testing.T) {
	long := strings.Repeat("correct horse ", 900)
	r := redact.New(redact.Values, map[string]string{"LONG": long})
	text := strings.Repeat("x", 60_000) + long + strings.Repeat("y", 60_000)
	for at := 60_000; at < len(text); at += 1000 {
		if got := written(r, text[:at], text[at:]); got != r.Text(text) {
			t.Fatalf("split at %d: %d bytes, want %d", at, len(got), len(r.Text(text)))
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("a "+githubKey+"\n"+pem, 5)
	f.Add(several+"\nX_TOKEN=0123456789abcdefgh", 3)
	r := redactor()
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = max(0, min(at, len(text)))
		redacted := r.Text(text)
		if back, err := r.Restore(redacted, text); err == nil && back != text {
			t.Errorf("%q is redacted to %q, and restored to %q", text, redacted, back)
		}
		if strings.ContainsAny(text, "\x00\b\x1b") {
			return // a Writer also finds secrets that controls divide
		}
		if got := written(r, text[:at], text[at:]); got != redacted {
			t.Errorf("%q split at %d is %q, want %q", text, at, got, redacted)
		}
	})
}

// BenchmarkWriter passes 1 MiB of source code and logs on in pieces of 32 KiB.
func BenchmarkWriter(b *testing.B) {
	text := strings.Repeat("go test -run TestX ./... && FOO=bar make -C /srv/build install\n"+
		"	if err := json.Unmarshal(data, &result); err != nil {\n"+
		"2026-01-31T10:00:00Z INFO request method=GET url=https://example.com/api/v1/users?id=12345 "+
		"status=200 task-runner=a1b2c3\n"+
		`      "integrity": "sha512-cl669nCJTZBsL97OF4kUQm5g5hC2uihk0NxY3WENAC0TYdILVkAyHymAntgxGkl7K"`+
		"\n", 4000)[:1<<20]
	r := redactor()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		n := 0
		w := r.NewWriter(func(p []byte) { n += len(p) })
		for rest := text; rest != ""; rest = rest[32<<10:] {
			w.Write([]byte(rest[:32<<10]))
		}
		w.Close()
		if n != len(text) {
			b.Fatal(n)
		}
	}
}
