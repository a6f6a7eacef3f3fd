package docker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/connhelper"
	dockercontext "github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"
)

// defaultContext is the name of the context that means the variables and the default socket.
const defaultContext = "default"

// Address says which daemon to use. The zero value finds it as the docker command does: DOCKER_HOST with
// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, else the context of DOCKER_CONTEXT, else the one that "docker context use" chose,
// else the socket of this machine.
type Address struct {
	// Host is unix:///path, tcp://host:port, with TLS as the variables say, or ssh://[user@]host[:port], which needs the
	// programs ssh here, which has to know the host's key and to get in without a question, and docker there.
	Host string
	// Context is the name of one of the docker command's contexts.
	Context string
	// Certificates is a folder with ca.pem, cert.pem and key.pem, for TLS with Host. Empty means what the variables say.
	Certificates string
}

// options returns how to make a client, and the address for people.
func (a Address) options() (opts []client.Opt, name string, err error) {
	if a.Host != "" && a.Context != "" {
		return nil, "", &ConfigError{Field: "address", Reason: "a host and a context are given; one of them is enough"}
	}
	host := cmp.Or(a.Host, os.Getenv(client.EnvOverrideHost))
	if a.Context == "" && host != "" {
		return a.hostOptions(host)
	}
	files, err := loadConfig()
	if err != nil {
		return nil, "", err
	}
	wanted := cmp.Or(a.Context, os.Getenv("DOCKER_CONTEXT"), files.CurrentContext)
	if wanted == "" || wanted == defaultContext {
		return a.hostOptions(cmp.Or(host, client.DefaultDockerHost))
	}
	return contextOptions(wanted)
}

// hostOptions are the options of a daemon at an address.
func (a Address) hostOptions(host string) ([]client.Opt, string, error) {
	if !isSSH(host) {
		if _, err := client.ParseHostURL(host); err != nil {
			return nil, "", &ConfigError{Field: "address", Reason: fmt.Sprintf("%q is none such as unix:///var/run/docker.sock, tcp://host:2376 or ssh://host: %v", host, err)}
		}
		secure := client.WithTLSClientConfigFromEnv()
		if dir := a.Certificates; dir != "" {
			secure = client.WithTLSClientConfig(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		}
		return []client.Opt{secure, client.WithHost(host)}, host, nil
	}
	opts, err := sshOptions(host)
	if err != nil {
		return nil, "", &ConfigError{Field: "address", Reason: fmt.Sprintf("%q: %v", host, err)}
	}
	return opts, host, nil
}

func isSSH(host string) bool { return strings.HasPrefix(host, "ssh://") }

// sshOptions are the options of a daemon that is reached by the program ssh. It asks nobody for a password or about a key:
// there may be nobody, and a question on a screen would hold everything up.
func sshOptions(host string) ([]client.Opt, error) {
	ssh, err := connhelper.GetConnectionHelperWithSSHOpts(host, []string{"-o", "BatchMode=yes"})
	if err != nil {
		return nil, err
	}
	return []client.Opt{
		client.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: ssh.Dialer}}), // by no proxy
		client.WithHost(ssh.Host), client.WithDialContext(ssh.Dialer),
	}, nil
}

// contextOptions are the options of a context of the docker command.
func contextOptions(name string) ([]client.Opt, string, error) {
	contexts := store.New(config.ContextStoreDir(), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(dockercontext.DockerEndpoint, func() any { return &dockercontext.EndpointMeta{} }),
	))
	fail := func(err error) ([]client.Opt, string, error) {
		return nil, "", &ConfigError{Field: "address", Reason: fmt.Sprintf("the docker context %q: %v; \"docker context ls\" lists those that there are", name, err)}
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

// dockerConfig is the part of the docker command's configuration file that is of interest here.
type dockerConfig struct {
	// CurrentContext is empty where none was chosen.
	CurrentContext string
	// login returns the encoded credentials for a registry, or nothing.
	login func(registry string) (string, error)
}

// loadConfig reads the docker command's configuration file. One that is missing, or somebody else's, is as good as an
// empty one.
func loadConfig() (dockerConfig, error) {
	file, err := config.Load(config.Dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return dockerConfig{}, &ConfigError{Field: "address", Reason: fmt.Sprintf("the configuration of the docker command: %v", err)}
	}
	if file == nil {
		file = config.LoadDefaultConfigFile(io.Discard)
	}
	return dockerConfig{CurrentContext: file.CurrentContext, login: func(registry string) (string, error) { return login(file, registry) }}, nil
}
