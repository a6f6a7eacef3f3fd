package portable

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shells returns the shells of this machine.
func shells(t testing.TB) [][]string {
	t.Helper()
	var found [][]string
	for _, argv := range [][]string{{"dash"}, {"bash", "--posix"}, {"bash"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(argv[0]); err == nil {
			found = append(found, argv)
		}
	}
	if len(found) == 0 {
		t.Skip("there is no shell to ask")
	}
	return found
}

// printed returns what each shell prints for a script that it reads from its standard input, as all scripts come.
func printed(t *testing.T, script string, check func(shell, out string)) {
	t.Helper()
	for _, argv := range shells(t) {
		c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		c.Stdin = strings.NewReader("LC_ALL=C\n" + script + "\n")
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil || errs.Len() > 0 {
			t.Errorf("%q with %.200q: %v, stderr %q", argv, script, err, errs.String())
		}
		check(strings.Join(argv, " "), string(out))
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "a b", "'", `'"'"'`, "\n", "a\n\n", `\`, "$HOME `id` $(id)", "\xff\x81\x88", "é", "~", "a=b", "-n", "!", "#", "%s", "\r", "1"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsRune(a+b, 0) {
			t.Skip("a NUL byte cannot be in an argument")
		}
		printed(t, `printf '%s\0' `+quote(a)+" "+quote(b)+"\nX="+quote(a)+`; printf '%s\0' "$X"`, func(shell, out string) {
			if diff := cmp.Diff([]string{a, b, a, ""}, strings.Split(out, "\x00")); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", shell, diff)
			}
		})
	})
}

func FuzzFormat(f *testing.F) {
	for _, s := range []string{"", "-", "--help", "-v x", "%", "%s%d%%", `\`, `\n\0`, "\x00", "a\x001", "'", "\n\n", "\xff\x81\x88\x00", "é", "\x7f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		printed(t, "printf "+format(data), func(shell, out string) {
			if out != string(data) {
				t.Errorf("%s: printed %q, want %q", shell, out, data)
			}
		})
	})
}

func TestFormatEveryByte(t *testing.T) {
	var data []byte
	for i := range 1 << 16 {
		data = append(data, byte(i>>8), byte(i))
	}
	for part := range slices.Chunk(data, inlineData) {
		printed(t, "printf "+format(part), func(shell, out string) {
			if out != string(part) {
				t.Errorf("%s: printed %d bytes that differ, want %d", shell, len(out), len(part))
			}
		})
	}
}

func TestExportable(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "_a1": true, "PATH": true, "LC_ALL": true, "": false, "1a": false, "a.b": false, "a-b": false, "é": false, "_": false,
		"IFS": false, "UID": false, "BASH_ENV": false, "sa_m": false, "OPTIND": false, "a b": false,
	} {
		if got := exportable(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
