package integration_test

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"go.yaml.in/yaml/v3"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// ciJob is a job of a workflow file: its variables and the scripts of its steps, in order.
type ciJob struct {
	name    string
	vars    map[string]string
	scripts []ciScript
}

type ciScript struct {
	text string
	vars map[string]string
}

func readWorkflow(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "docs", "ci", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func githubJobs(t *testing.T) []ciJob {
	t.Helper()
	var file struct {
		Env  map[string]string
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct {
				Name, Uses, Run string
				Env             map[string]string
			}
		}
	}
	readWorkflow(t, "github.yml", &file)
	var jobs []ciJob
	for name, job := range file.Jobs {
		j := ciJob{name: name, vars: maps.Clone(file.Env)}
		maps.Copy(j.vars, job.Env)
		for _, step := range job.Steps {
			if (step.Uses == "") == (step.Run == "") {
				t.Errorf("%s: the step %q does not either use or run something", name, step.Name)
			}
			if strings.Contains(step.Run, "${{") {
				t.Errorf("%s: a value is substituted into the script %q", name, step.Run)
			}
			if step.Run != "" {
				j.scripts = append(j.scripts, ciScript{step.Run, step.Env})
			}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func gitlabJobs(t *testing.T) []ciJob {
	t.Helper()
	var file map[string]yaml.Node
	readWorkflow(t, "gitlab.yml", &file)
	decode := func(key string, into any) {
		node := file[key]
		if err := node.Decode(into); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	vars := map[string]string{}
	decode("variables", &vars)
	var jobs []ciJob
	for key := range file {
		if key == "variables" || strings.HasPrefix(key, ".") {
			continue
		}
		var job struct {
			Variables map[string]string
			Script    []string
		}
		decode(key, &job)
		j := ciJob{name: key, vars: maps.Clone(vars)}
		maps.Copy(j.vars, job.Variables)
		for _, line := range job.Script {
			j.scripts = append(j.scripts, ciScript{text: line})
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// notRun are scripts of the examples that the test does not execute, each with the reason.
var notRun = map[string]string{
	"CGO_ENABLED=0 go install " + module + "/cmd/sandboxagent@latest": "the test built the program",
}

// ciModel repairs the repository that ciCheckout makes.
const ciModel = `turns:
  - expect: {user: {contains: mend it}, tools: [shell]}
    calls: [{tool: shell, args: {command: 'sh check.sh; echo mended >state'}}]
  - text: It is mended.
`

// ciCheckout makes a checkout as CI systems do, whose configuration holds a token, and in which a
// check fails.
func ciCheckout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	writeTree(t, dir, map[string]string{
		"state":    "broken\n",
		"check.sh": "grep -q mended state\n",
		"alone.sh": "sh check.sh && ! grep -rq canary .git\n",
	})
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "a broken state")
	git(t, dir, "config", "http.https://git.example.com/.extraheader", "AUTHORIZATION: basic canary")
	return dir
}

// runCI executes the scripts of a job and returns its patch.
func runCI(t *testing.T, job ciJob, vars map[string]string) []byte {
	t.Helper()
	dir, temp := ciCheckout(t), t.TempDir()
	writeTree(t, temp, map[string]string{"model.yaml": ciModel})
	all := maps.Clone(job.vars)
	for name := range vars {
		if all[name] == "" && strings.HasPrefix(name, "SANDBOXAGENT_") {
			t.Errorf("the job %s does not set %s", job.name, name)
		}
	}
	for _, script := range job.scripts {
		text := strings.TrimSpace(script.text)
		if notRun[text] != "" {
			continue
		}
		maps.Copy(all, script.vars)
		maps.Copy(all, map[string]string{
			"SANDBOXAGENT_MODEL":     "script:" + filepath.Join(temp, "model.yaml"),
			"SANDBOXAGENT_STATE_DIR": t.TempDir(), "RUNNER_TEMP": temp, "TASK": "Please mend it.",
		})
		maps.Copy(all, vars)
		cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", text)
		cmd.Dir = dir
		path := filepath.Dir(command(t)) + string(os.PathListSeparator) + os.Getenv("PATH")
		cmd.Env = append(os.Environ(), "PATH="+path)
		for name, value := range all {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", text, err, out)
		}
	}
	patch, err := os.ReadFile(filepath.Join(temp, "agent.patch"))
	if errors.Is(err, os.ErrNotExist) {
		patch, err = os.ReadFile(filepath.Join(dir, "agent.patch"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// TestCIExamples executes the steps of the example workflows. A daemon of the test replaces that of
// the runner, over TLS where the job has it.
func TestCIExamples(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the examples are scripts for a POSIX shell")
	}
	groups := map[string][]ciJob{"github": githubJobs(t), "gitlab": gitlabJobs(t)}
	var names []string
	for group, jobs := range groups {
		for _, job := range jobs {
			names = append(names, group+"/"+job.name)
		}
	}
	slices.Sort(names)
	want := []string{
		"github/docker", "github/local", "github/socket", "gitlab/dind", "gitlab/local",
		"gitlab/rootless", "gitlab/socket",
	}
	if !slices.Equal(names, want) {
		t.Fatalf("the examples have the jobs %v", names)
	}
	t.Run("local", func(t *testing.T) {
		for group, jobs := range groups {
			for _, job := range jobs {
				if job.name == "local" {
					checkPatch(t, group+"/"+job.name, runCI(t, job,
						map[string]string{"SANDBOXAGENT_VERIFY": "sh check.sh"}))
				}
			}
		}
	})
	t.Run("docker", func(t *testing.T) {
		d := daemons.NewDocker(t, daemons.DockerConfig{TLS: true})
		if err := d.Load(t.Context(), daemons.Debian); err != nil {
			t.Fatal(err)
		}
		for group, jobs := range groups {
			for _, job := range jobs {
				if job.name == "local" {
					continue
				}
				vars := map[string]string{
					"DOCKER_HOST": d.Host(), "SANDBOXAGENT_IMAGE": daemons.Debian,
					"SANDBOXAGENT_VERIFY": "sh alone.sh",
				}
				if job.vars["DOCKER_TLS_VERIFY"] != "" {
					vars["DOCKER_HOST"], vars["DOCKER_CERT_PATH"] = d.TLSHost(), d.CertDir()
				}
				checkPatch(t, group+"/"+job.name, runCI(t, job, vars))
			}
		}
		checkNoContainers(t, d.Host())
	})
}

func checkPatch(t *testing.T, job string, patch []byte) {
	t.Helper()
	if text := string(patch); !strings.Contains(text, "-broken\n+mended\n") || strings.Contains(text,
		"canary") {
		t.Errorf("%s: the patch is\n%s", job, text)
	}
}

// checkNoContainers fails if the daemon has a container.
func checkNoContainers(t *testing.T, host string) {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it has no state
	left, err := c.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range left {
		t.Errorf("left: %s %s %s", cmp.Or(strings.Join(is.Names, " "), is.ID), is.Image, is.Status)
	}
}
