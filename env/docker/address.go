package docker

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config"
	dockercontext "github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"
)

// defaultContext is the docker command's context of the environment variables and the default
// socket.
const defaultContext = "default"

// Address selects a daemon. The zero value selects the docker command's: DOCKER_HOST with
// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, else the context DOCKER_CONTEXT, else the current
// context, else the socket of this machine.
type Address struct {
	// Host is unix:///path, tcp://host:port, or ssh://[user@]host[:port]. The last one needs the
	// program ssh here, which must know the host's key and log in without a prompt, and docker on the
	// host.
	Host string
	// Context is the name of a context of the docker command. It excludes Host.
	Context string
	// Certificates is a directory with ca.pem, cert.pem and key.pem for TLS with Host; the default is
	// the environment variables above.
	Certificates string
}

// options returns the options of a client, and the address for messages.
func (a Address) options() (opts []client.Opt, name string, err error) {
	if a.Host != "" && a.Context != "" {
		return nil, "", badConfig("address", "a host and a context exclude each other")
	}
	host := cmp.Or(a.Host, os.Getenv(client.EnvOverrideHost))
	if a.Context == "" && host != "" {
		return a.hostOptions(host)
	}
	files, err := loadConfig()
	if err != nil {
		return nil, "", err
	}
	name = cmp.Or(a.Context, os.Getenv("DOCKER_CONTEXT"), files.CurrentContext)
	if name == "" || name == defaultContext {
		return a.hostOptions(cmp.Or(host, client.DefaultDockerHost))
	}
	return contextOptions(name)
}

// hostOptions returns the options for an address.
func (a Address) hostOptions(host string) ([]client.Opt, string, error) {
	if !isSSH(host) {
		if _, err := client.ParseHostURL(host); err != nil {
			const examples = "unix:///var/run/docker.sock, tcp://host:2376 or ssh://host"
			return nil, "", badConfig("address", "%q is not an address such as %s: %v", host, examples, err)
		}
		secure := client.WithTLSClientConfigFromEnv()
		if dir := a.Certificates; dir != "" {
			in := func(name string) string { return filepath.Join(dir, name) }
			secure = client.WithTLSClientConfig(in("ca.pem"), in("cert.pem"), in("key.pem"))
		}
		return []client.Opt{secure, client.WithHost(host)}, host, nil
	}
	opts, err := sshOptions(host)
	if err != nil {
		return nil, "", badConfig("address", "%q: %v", host, err)
	}
	return opts, host, nil
}

func isSSH(host string) bool { return strings.HasPrefix(host, "ssh://") }

// contextOptions returns the options for a context of the docker command.
func contextOptions(name string) ([]client.Opt, string, error) {
	contexts := store.New(config.ContextStoreDir(), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(dockercontext.DockerEndpoint,
			func() any { return &dockercontext.EndpointMeta{} }),
	))
	fail := func(err error) ([]client.Opt, string, error) {
		return nil, "", badConfig("address",
			"the docker context %q: %v; \"docker context ls\" lists all", name, err)
	}
	meta, err := contexts.GetMetadata(name)
	if err != nil {
		return fail(err)
	}
	plain, err := dockercontext.EndpointFromContext(meta)
	if err != nil {
		return fail(err)
	}
	endpoint, err := dockercontext.WithTLSData(contexts, name, plain)
	if err != nil {
		return fail(err)
	}
	opts, err := endpoint.ClientOpts()
	if isSSH(endpoint.Host) {
		opts, err = sshOptions(endpoint.Host)
	}
	if err != nil {
		return fail(err)
	}
	return opts, cmp.Or(endpoint.Host, client.DefaultDockerHost), nil
}

// dockerConfig is the configuration file of the docker command.
type dockerConfig struct {
	// CurrentContext may be empty.
	CurrentContext string
	// login returns the encoded credentials for a registry, which may be empty.
	login func(registry string) (string, error)
}

// loadConfig reads the configuration file of the docker command. A missing or unreadable one counts
// as empty.
func loadConfig() (dockerConfig, error) {
	file, err := config.Load(config.Dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return dockerConfig{}, badConfig("address", "the configuration of the docker command: %v", err)
	}
	if file == nil {
		file = config.LoadDefaultConfigFile(io.Discard)
	}
	return dockerConfig{
		CurrentContext: file.CurrentContext,
		login:          func(registry string) (string, error) { return login(file, registry) },
	}, nil
}
