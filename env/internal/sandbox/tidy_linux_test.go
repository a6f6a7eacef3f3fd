package sandbox

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTidyStays replaces the repository that is tidied up by a symlink to another one.
func TestTidyStays(t *testing.T) {
	for _, by := range Mechanisms() {
		t.Run(string(by), func(t *testing.T) {
			need(t, by)
			w := newWorld(t)
			other := w.out + "/other"
			if err := errors.Join(os.RemoveAll(w.work+"/.git/hooks"), os.MkdirAll(other+"/hooks", 0o755),
				os.WriteFile(other+"/commondir", []byte("../..\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			p := w.plan(t, by)
			if !p.Leaves() {
				t.Fatalf("nothing is to be tidied up: %+v", p)
			}
			if err := errors.Join(os.Rename(w.work+"/.git", w.work+"/old"), os.Mkdir(w.work+"/old/hooks",
				0o755), os.Symlink(other, w.work+"/.git")); err != nil {
				t.Fatal(err)
			}
			if err := p.Tidy(); err != nil {
				t.Error(err)
			}
			if !exists(other+"/hooks") || !exists(other+"/commondir") {
				t.Error("something has gone from another repository")
			}
			if exists(w.work + "/old/hooks") {
				t.Error("something has stayed in the repository")
			}
		})
	}
}

// TestKept has something kept in a directory that may be changed.
func TestKept(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	kept := w.out + "/sub/kept"
	if err := errors.Join(os.MkdirAll(kept, 0o777), os.WriteFile(kept+"/file", []byte("kept\n"),
		0o666)); err != nil {
		t.Fatal(err)
	}
	w.policy.Write, w.policy.ReadOnly = []string{
		w.out,
	}, []string{
		kept,
		w.home + "/plain",
		w.out + "/missing",
	}
	if out, code := w.run(t, Bubblewrap, `echo x >"$OUT/new" && ! echo x >"$OUT/sub/kept/file" `+
		`&& ! mv "$OUT/sub" "$OUT/moved"`); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	if got := w.content("out/sub/kept/file"); got != "kept\n" {
		t.Errorf("the file holds %q", got)
	}
	var unable *Error
	if _, err := New(w.policy, Landlock, []string{w.home}, os.Getenv); !errors.As(err, &unable) {
		t.Errorf("with Landlock: %v", err)
	}
	w.policy.Write = []string{kept}
	if _, err := New(w.policy, Bubblewrap, []string{w.home}, os.Getenv); errors.As(err, &unable) ||
		!errors.Is(err, fs.ErrInvalid) {
		t.Errorf("all of it: %v", err)
	}
}

// TestTidier has a process tidy up, or not.
func TestTidier(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	for name, tt := range map[string]struct {
		after string
		stays bool
	}{"the end": {"", false}, "a word": {string(dismissByte), true}} {
		t.Run(name, func(t *testing.T) {
			made := filepath.Join(t.TempDir(), "made")
			if err := os.Mkdir(made, 0o700); err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := (&Plan{OwnTemp: made}).Entrust(&text); err != nil {
				t.Fatal(err)
			}
			if err := RunTidier(strings.NewReader(text.String()+tt.after), nil); err != nil {
				t.Error(err)
			}
			if exists(made) != tt.stays {
				t.Errorf("it is there: %t", exists(made))
			}
		})
	}
	for _, bad := range []string{"", "{}", "{\n", `{"plan":7}` + "\n"} {
		if err := RunTidier(strings.NewReader(bad), nil); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}
