package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// put writes files of a world, and makes their directories.
func (w *world) put(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(w.root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		w.write(t, name)
	}
	if w.uid >= 0 {
		w.as(t, w.uid)
	}
}

// reads runs cat for each file in a sandbox, and checks which it reads.
func (w *world) reads(t *testing.T, by Mechanism, readable, hidden []string) {
	t.Helper()
	script := "echo started"
	for _, name := range append(readable, hidden...) {
		script += `; cat "$ROOT/` + name + `"`
	}
	out, code := w.run(t, by, script)
	if !strings.Contains(out, "started") || code == 125 {
		t.Fatalf("exit code %d, %s", code, out)
	}
	for _, name := range readable {
		if !strings.Contains(out, "content of "+name+"\n") {
			t.Errorf("%s is hidden: %s", name, out)
		}
	}
	for _, name := range hidden {
		if strings.Contains(out, "content of "+name+"\n") {
			t.Errorf("%s is read", name)
		}
	}
}

// TestHome reads what is in a home directory.
func TestHome(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		w.vars["GOPATH"] = w.home + "/gopath:" + w.home + ":" + w.home + "/.ssh:" + w.home + "/.local"
		w.vars["JAVA_HOME"] = w.home + "/tools/jdk"
		w.vars["PATH"] = "/usr/bin:bin:" + w.home + "/tools/node/bin:" + w.home + "/bin:" +
			w.home + "/.local/bin:" + w.home + "/tools/scripts:" + w.home + "/.ssh/bin"
		readable := []string{
			"home/go/pkg/mod/x", "home/.cache/go-build/x", "home/.cargo/bin/x", "home/.gitconfig",
			"home/.config/git/config", "home/.local/share/uv/x", "home/gopath/x", "home/tools/jdk/lib/x",
			"home/tools/node/bin/x", "home/tools/node/lib/x", "home/bin/x", "home/.local/bin/x",
			"home/tools/scripts/x",
		}
		hidden := []string{
			"home/plain", "home/.ssh/id", "home/.ssh/bin/x", "home/.netrc", "home/.cargo/credentials.toml",
			"home/.config/git/credentials", "home/.config/gh/hosts.yml", "home/.config/other",
			"home/.local/share/other/x", "home/.local/state/x", "home/.cache/other/x", "home/tools/x",
			"home/tools/secret/x", "home/project/x", "home/.kaggle/kaggle.json", "home/.profile",
			"home/.config/Cursor/x", "home/.cache/huggingface/token", "home/.pulumi/credentials.json",
		}
		w.put(t, append(readable, hidden...)...)
		w.reads(t, by, readable, hidden)
		out, _ := w.run(t, by, `cd "$HOME" && pwd && ls -A`)
		if by == Bubblewrap && out != w.home+"\n.cache\n.cargo\n.config\n.gitconfig\n.local\nbin\ngo\n"+
			"gopath\ntools\n" {
			t.Errorf("listed %q", out)
		}
		w.policy.Read = []string{w.home + "/project", w.home + "/.config/gh"}
		w.policy.Write = []string{w.home + "/.local/state"}
		w.reads(t, by, append(readable, "home/project/x", "home/.config/gh/hosts.yml",
			"home/.local/state/x"), []string{"home/plain", "home/.ssh/id"})
	})
}
