package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hidden is a text that must never come into a container. Programs that search for it use a
// pattern, so as not to find themselves.
const (
	hidden        = "CI-CANARY-5f1c"
	hiddenPattern = "CI-CANAR[Y]-5f1c"
)

// jobCheckout makes a checkout with a history and a submodule, and with secrets wherever CI systems
// and users leave them in git.
func jobCheckout(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	module, dir := filepath.Join(top, "module"), filepath.Join(top, "checkout")
	writeTree(t, module, map[string]string{"lib.txt": "a library\n"})
	git(t, module, "init", "-q", "-b", "main")
	git(t, module, "add", ".")
	git(t, module, "commit", "-q", "-m", "a library")
	writeTree(t, dir, map[string]string{"readme.txt": "read me\n", ".gitignore": ".env\n"})
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", module, "lib")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "the first")
	for _, c := range []string{dir, filepath.Join(dir, "lib")} {
		git(t, c, "config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic "+hidden)
		git(t, c, "config", "url.https://x-access-token:"+hidden+"@github.com/.insteadOf",
			"git@github.com:")
		git(t, c, "config", "remote.ci.url", "https://token:"+hidden+"@gitlab.example.com/a/b.git")
		git(t, c, "config", "remote.ci.pushurl", "https://"+hidden+"@gitlab.example.com/a/b.git")
		git(t, c, "config", "credential.helper", "!echo password="+hidden)
		git(t, c, "config", "alias.secret", "!echo "+hidden)
		git(t, c, "config", "core.sshCommand", "ssh -i /home/ci/"+hidden)
	}
	git(t, dir, "config", "includeIf.gitdir:"+dir+"/.git.path", filepath.Join(dir, ".git",
		"ci-credentials.config"))
	git(t, dir, "config", "include.path", filepath.Join(top, "outside.config"))
	writeTree(t, top, map[string]string{
		"outside.config":                      "[http]\n\textraheader = X: " + hidden + "\n",
		"checkout/.git/ci-credentials.config": "[http]\n\textraheader = Y: " + hidden + "\n",
		"checkout/.git/credentials":           "https://user:" + hidden + "@github.com\n",
		"checkout/.git/hooks/post-checkout":   "#!/bin/sh\necho " + hidden + "\n",
		"checkout/.git/FETCH_HEAD": strings.Repeat("0", 40) +
			"\tbranch 'main' of https://x:" + hidden + "@github.com/a/b\n",
		"checkout/.git/logs/HEAD": strings.Repeat("0", 40) + " " + strings.Repeat("1",
			40) + " a <b@c> 0 +0000\tclone: from https://x:" + hidden + "@h/r\n",
		"checkout/.git/description":              hidden + "\n",
		"checkout/.git/COMMIT_EDITMSG":           hidden + "\n",
		"checkout/.git/info/grafts":              "# " + hidden + "\n",
		"checkout/.git/modules/lib/hooks/update": "echo " + hidden + "\n",
		"checkout/.git/config.worktree":          "[http]\n\textraheader = Z: " + hidden + "\n",
		"checkout/.env":                          "TOKEN=" + hidden + "\n",
	})
	return dir
}

// jobVars are the variables of a job.
func jobVars() []string {
	return []string{
		"CI=true", "GITHUB_TOKEN=" + hidden, "ACTIONS_RUNTIME_TOKEN=" + hidden, "CI_JOB_TOKEN=" +
			hidden, "CI_REPOSITORY_URL=https://gitlab-ci-token:" + hidden + "@h/r.git",
		"AWS_SECRET_ACCESS_KEY=" + hidden, "SOMETHING=" + hidden, "OPENAI_API_KEY=" +
			hidden, "GIT_CONFIG_PARAMETERS='http.extraheader=A: " + hidden + "'",
	}
}

// lookEverywhere prints the files that hold the hidden text, in all file systems and below /proc.
const lookEverywhere = `
export LC_ALL=C
grep -rlas -e '` + hiddenPattern + `' / --exclude-dir=proc --exclude-dir=sys
for p in /proc/[0-9]*; do
	grep -las -e '` + hiddenPattern + `' $p/environ $p/cmdline $p/mountinfo
done
git config --list --show-origin 2>/dev/null | grep -e '` + hiddenPattern + `'
git -C lib config --list --show-origin 2>/dev/null | grep -e '` + hiddenPattern + `'
env | grep -e '` + hiddenPattern + `'
echo searched`

// TestDockerHidesSecretsOfJobs searches a container for the secrets in the checkout and the
// variables of a CI job.
func TestDockerHidesSecretsOfJobs(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	dir := jobCheckout(t)
	t.Run("nothing is found", func(t *testing.T) {
		t.Parallel()
		got := d.run(t, dir, jobVars(), "exec", "--workdir="+dir, "--user=root", "--", "sh", "-c",
			lookEverywhere)
		if got.code != 0 || got.stdout != "searched\n" {
			t.Errorf("exit code %d, the search finds\n%s\n%s", got.code, got.stdout, got.stderr)
		}
	})
	t.Run("the search works", func(t *testing.T) {
		t.Parallel()
		in := filepath.Join(t.TempDir(), "in.txt")
		if err := os.WriteFile(in, []byte("x"+hidden+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := d.run(t, dir, jobVars(), "exec", "--workdir="+dir, "--upload", in+":/tmp/a",
			"--upload-ignored=.env", "--pass-var=GITHUB_TOKEN", "--", "sh", "-c", lookEverywhere)
		for _, name := range []string{
			"/tmp/a/in.txt\n", "/workspace/.env\n", "/environ\n", "GITHUB_TOKEN=",
		} {
			wantContains(t, "the search", got.stdout, name)
		}
	})
}
