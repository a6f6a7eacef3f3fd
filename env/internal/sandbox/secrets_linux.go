package sandbox

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// HomeDirs returns the home directories to hide: $HOME first, that of this user, and for root,
// which can read all, those of all users.
func HomeDirs() (homes []string) {
	add := func(name string) {
		if filepath.IsAbs(name) && !slices.Contains(homes, name) {
			homes = append(homes, filepath.Clean(name))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(home)
	}
	if me, err := user.Current(); err == nil {
		add(me.HomeDir)
	}
	if os.Geteuid() == 0 {
		users, _ := os.ReadFile("/etc/passwd") // optional
		for line := range strings.Lines(string(users)) {
			if f := strings.Split(line, ":"); len(f) > 5 &&
				(Within(f[5], "/home") || Within(f[5], "/root")) &&
				f[5] != "/home" {
				add(f[5])
			}
		}
		entries, _ := os.ReadDir("/home") // users may be known to a directory service only
		for _, e := range entries {
			if e.IsDir() {
				add("/home/" + e.Name())
			}
		}
	}
	return homes
}

// secrets returns the paths of keys, tokens, passwords, cookies and histories. Many do not exist.
func secrets(homes []string, getenv func(string) string) (names []string) {
	for _, home := range homes {
		for _, name := range slices.Concat(inHome, secretsInNamed) {
			names = append(names, filepath.Join(home, name))
		}
	}
	for _, v := range inVariables {
		// Some of them are lists.
		for _, name := range strings.Split(getenv(v), ":") {
			if filepath.IsAbs(name) {
				names = append(names, name)
			}
		}
	}
	return append(names, onSystem...)
}

// inHome are files and directories below a home directory.
var inHome = []string{
	// Keys, and passwords of password managers.
	".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings", ".local/share/kwalletd",
	".config/keepassxc",
	".config/Bitwarden", ".config/Bitwarden CLI", ".config/1Password", ".config/op", ".config/sops",
	".config/age", ".vault-token",
	// Clouds and clusters.
	".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/hcloud", ".config/scw",
	".config/linode-cli", ".oci", ".bluemix",
	".kube", ".minikube", ".config/helm", ".docker", ".config/containers", ".terraform.d",
	".terraformrc", ".config/rclone", ".boto", ".s3cfg",
	".config/fly", ".fly", ".config/heroku", ".config/netlify", ".config/vercel",
	".local/share/com.vercel.cli", ".wrangler",
	// Forges, registries of packages, databases, mail.
	".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub",
	".config/glab-cli", ".config/tea",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".config/pypoetry/auth.toml", ".cargo/credentials",
	".cargo/credentials.toml",
	".gem/credentials", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
	".nuget/NuGet/NuGet.Config",
	".composer/auth.json", ".config/composer/auth.json", ".hex/hex.config",
	".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".config/msmtp", ".msmtprc", ".mbsyncrc",
	".thunderbird",
	// Agents.
	".codex", ".claude", ".claude.json", ".gemini", ".config/opencode", ".local/share/opencode",
	".config/crush", ".local/share/crush",
	".config/github-copilot", ".config/sandboxagent", ".local/state/sandboxagent",
	// Browsers and chats.
	".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
	".config/microsoft-edge", ".config/vivaldi", ".config/opera",
	".config/Slack", ".config/Signal", ".config/discord",
	// Displays and histories.
	".Xauthority", ".ICEauthority", ".bash_history", ".zsh_history", ".histfile",
	".local/share/fish/fish_history", ".python_history",
	".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history",
	".lesshst", ".viminfo",
}

// inVariables are variables that contain paths of such files and directories.
var inVariables = []string{
	"GNUPGHOME", "PASSWORD_STORE_DIR", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_CONFIG_DIR",
	"CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "DOCKER_CONFIG",
	"REGISTRY_AUTH_FILE", "NETRC", "NPM_CONFIG_USERCONFIG",
	"PGPASSFILE", "XAUTHORITY", "ICEAUTHORITY", "HISTFILE", "VAULT_TOKEN_FILE", "GH_CONFIG_DIR",
	"SOPS_AGE_KEY_FILE", "RCLONE_CONFIG",
}

// onSystem are files and directories that root can read.
var onSystem = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
	"/etc/ssl/private", "/etc/krb5.keytab",
	"/etc/ssh/ssh_host_dsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key",
	"/etc/ssh/ssh_host_rsa_key",
	"/etc/kubernetes", "/etc/rancher", "/var/lib/kubelet", "/var/lib/docker", "/var/lib/containerd",
	"/var/lib/sss", "/var/lib/NetworkManager",
	"/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/wpa_supplicant",
	"/etc/letsencrypt", "/var/spool/cron", "/var/spool/mail",
	"/var/run/secrets", "/run/secrets",
}
