package daemons

// The images that Load makes without a registry. Those that public registries have carry the same
// names.
const (
	// Debian is a minimal Debian: apt, bash, coreutils, neither git nor ripgrep.
	Debian = "debian:bookworm-slim"
	// Busybox has a shell and small tools, all of them busybox.
	Busybox = "busybox:latest"
	// Empty has no shell: its only file is /bin/probe, a static program whose arguments are "args
	// ARG…" (prints each on a line, quoted), "vars", "id", "exit CODE" and "sleep DURATION".
	Empty = "sandboxagent-test/empty:latest"
	// Foreign is Empty for another architecture than this machine's: arm64, or amd64 on arm64.
	Foreign = "sandboxagent-test/foreign:latest"
	// Helper is the product's image of the helper, built from this source.
	Helper = "sandboxagent-helper:latest"
	// Agent is the product's image of agents, built from this source, without certificates.
	Agent = "sandboxagent-agent:latest"
	// Golang has /usr/local/go and nothing else: the image of the go command, as far as it is copied
	// from.
	Golang = "golang:1.26-bookworm"
)
