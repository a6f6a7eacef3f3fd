package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/env/local"
	envtransfer "github.com/sandboxagent/sandboxagent/env/transfer"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/images"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// submitName is the command batch submit.
const submitName = "batch submit"

// modelCIDRName and apiCIDRName are flags of it.
const modelCIDRName, apiCIDRName = "model-cidr", "api-cidr"

// agentAccount is the default of --agent-account.
const agentAccount = "sandboxagent-agent"

// keepFor is the default of --keep-for.
const keepFor = 7 * 24 * time.Hour

func (p *program) submitCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run the tasks of a batch in a cluster, without this machine",
		ArgsUsage: "[flags] TASKS.jsonl",
		UsageText: `
sandboxagent batch submit -m openai/gpt-5 tasks.jsonl
sandboxagent batch submit --parallel 50 tasks.jsonl`,
		Description: `
Prints the name of the batch. Each task has an agent in a pod of a Job, and a sandbox in another
pod, which has neither the key nor the rights of the agent. The files that tasks name go with them.
"batch wait" waits for the end, and "batch collect" gets the results, on any machine. Nothing has to
be installed but a service account for the agents. Exit codes: 0 submitted, 2 usage, 6 the cluster
refuses it.`,
		Flags:  submitFlags(),
		Action: p.action(p.submit),
	}
}

// withoutSubmit are the flags of batch that batch submit does not have.
var withoutSubmit = [...]string{
	"starting", "max-cost", "junit", "json", "env", "log", "helper-binary", "yes",
}

// submitFlags are the flags of batch submit. Its environments are pods.
func submitFlags() []cli.Flag {
	b := &k8sBackend{}
	flags := []cli.Flag{
		&cli.StringFlag{
			Name: "env", Category: groupEnvironment, Value: b.name(),
			Usage: "act in `ENVIRONMENT`: " + b.name(),
		},
		&cli.StringFlag{
			Name: "name", Category: groupBatch, DefaultText: "that of the file, and random letters",
			Usage: "submit the batch as `NAME`",
		},
		&cli.StringFlag{
			Name: "agent-image", Category: groupBatch, DefaultText: agentImage(),
			Usage: "run agents in `IMAGE`, such as that of \"image build agent\"",
		},
		&cli.StringFlag{
			Name: "agent-account", Category: groupBatch, Value: agentAccount,
			Usage: "let agents use the cluster as the service account `NAME`",
		},
		&cli.StringFlag{
			Name: "agent-template", Category: groupBatch,
			Usage: "add the fields of a pod in `FILE`, which is YAML, to the pods of agents",
		},
		&cli.StringSliceFlag{
			Name: "model-secret", Category: groupBatch, DefaultText: "the keys of this machine",
			Usage: "give agents the variables of the Secret `NAME`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: modelCIDRName, Category: groupBatch, DefaultText: "everywhere",
			Usage: "let agents reach the port of the model at `ADDRESSES` only, such as 10.1.0.0/16; may " +
				"be repeated",
		},
		&cli.StringSliceFlag{
			Name: apiCIDRName, Category: groupBatch, DefaultText: "everywhere",
			Usage: "let agents reach the port of the API server at `ADDRESSES` only; may be repeated",
		},
		&cli.Float64Flag{
			Name: "max-cost", Category: groupBatch, DefaultText: "no limit",
			Usage: "spend at most `N` US dollars with each attempt at a task that has no limit of its own",
		},
		&cli.StringFlag{
			Name: "queue", Category: groupBatch,
			Usage: "let the local queue `NAME` of Kueue start the batch",
		},
		&cli.DurationFlag{
			Name: "keep-for", Category: groupBatch, Value: keepFor,
			Usage: "delete the batch, with its results, this `DURATION` after its end",
		},
	}
	foreign := make(map[string]bool)
	for _, f := range backendFlags() {
		foreign[f.Names()[0]] = true
	}
	for _, f := range slices.Concat(remoteFlags(), containerFlags(), b.flags()) {
		delete(foreign, f.Names()[0])
	}
	for _, f := range batchFlags() {
		name := f.Names()[0]
		if !foreign[name] && !slices.Contains(withoutSubmit[:], name) {
			flags = append(flags, f)
		}
	}
	return flags
}

// agentImage returns the default of --agent-image.
func agentImage() string {
	i, _ := images.Find("agent")
	return i.Reference
}

// workOrder is what the agents of a batch get beside their tasks.
type workOrder struct {
	Submitted time.Time `json:"submitted"`
	// Flags are those of the command batch.
	Flags []string   `json:"flags"`
	Files []workFile `json:"files,omitempty"`
	// Rules are those of the project, which tighten the policy.
	Rules []policy.Rule `json:"rules,omitempty"`
}

// workFile is a file of the submitting machine, or the packed content of a directory.
type workFile struct {
	// Name is the name in the cluster, and Path that in the pod.
	Name string `json:"name"`
	Path string `json:"path"`
	Dir  bool   `json:"dir,omitempty"`
	// Mode is that of a file.
	Mode os.FileMode `json:"mode,omitempty"`
}

// workTask is the task of an agent.
type workTask struct {
	// Task is the task as its file has it. Sent are its fields whose files have other names in the
	// cluster.
	Task  batch.Task `json:"task"`
	Sent  sentFields `json:"sent,omitzero"`
	Files []workFile `json:"files,omitempty"`
	// Line is that of its file, for messages.
	Line int `json:"line,omitempty"`
}

// sentFields are the fields of a task with names of files, and the limit of tasks without one; an
// empty Model is that of the task.
type sentFields struct {
	Workdir string   `json:"workdir,omitempty"`
	Archive string   `json:"archive,omitempty"`
	Upload  []string `json:"upload,omitempty"`
	Model   string   `json:"model,omitempty"`

	MaxCostUSD float64 `json:"max_cost,omitempty"`
}

// here returns the task as its agent works on it.
func (w workTask) here() batch.Task {
	t := w.Task
	t.Workdir, t.Archive, t.Upload = w.Sent.Workdir, w.Sent.Archive, w.Sent.Upload
	t.Model = cmp.Or(w.Sent.Model, t.Model)
	t.Limits.MaxCostUSD = cmp.Or(t.Limits.MaxCostUSD, w.Sent.MaxCostUSD)
	return t
}

// file returns the file of tasks for the agent, on whose line Line the task is.
func (w workTask) file() ([]byte, error) {
	text, err := json.Marshal(w.here())
	return append(bytes.Repeat([]byte("\n"), max(0, w.Line-1)), text...), err
}

// Bounds of flags of batch submit, and of a workOrder in bytes, which is an environment variable.
const (
	maxSubmitParallel = 10_000
	maxSubmitRetries  = 100
	maxWorkOrder      = 100 << 10
)

// submission makes the objects of a batch.
type submission struct {
	p *program
	c *cli.Context
	// files are the contents of files by their names in the cluster, and packed the files by their
	// source.
	files  map[string][]byte
	packed map[string]workFile
	size   int // of files, in bytes
	// template is that of the pods of agents; mounts are the directories that it mounts.
	template []byte
	mounts   []string
	// ignored are the ignored files to upload.
	ignored []string
}

// submit is the command batch submit.
func (p *program) submit(ctx context.Context, c *cli.Context) (int, error) {
	if name := (&k8sBackend{}).name(); c.String("env") != name {
		return 0, usagef("--env: a batch is submitted to a cluster; use %s, or batch without submit",
			name)
	}
	settings := batchSettings{
		parallel: c.Int("parallel"), retries: c.Int("retries"), maxFailures: c.Int("max-failures"),
	}
	if err := settings.check(c); err != nil {
		return 0, err
	}
	switch {
	case settings.parallel > maxSubmitParallel:
		return 0, usagef("--parallel is %d; it is at most %d", settings.parallel, maxSubmitParallel)
	case settings.retries > maxSubmitRetries:
		return 0, usagef("--retries is %d; it is at most %d", settings.retries, maxSubmitRetries)
	case c.IsSet("max-cost") && !(c.Float64("max-cost") > 0):
		return 0, usagef("--max-cost %g is no amount of US dollars that allows a request",
			c.Float64("max-cost"))
	}
	in, err := readBatch(c.Args().Slice(), "")
	if err != nil {
		return 0, err
	}
	in.dir = ""
	s := &submission{
		p: p, c: c, files: make(map[string][]byte), packed: make(map[string]workFile),
		ignored: c.StringSlice("upload-ignored"),
	}
	if err := s.readTemplate(); err != nil {
		return 0, err
	}
	settings.keysElsewhere, settings.isElsewhere = c.IsSet("model-secret"), s.isMounted
	environ := os.Environ()
	r, err := p.newBatchRunner(c, in, settings)
	if err != nil {
		return 0, err
	}
	cfg, err := s.config(ctx, r, environ)
	if err != nil {
		return 0, err
	}
	var b k8sBackend
	if err := b.parseConnection(c); err != nil {
		return 0, err
	}
	err = withCluster(ctx, b.address, func(cluster *k8s.Cluster) error {
		client, err := jobs.New(cluster)
		if err == nil {
			err = client.Submit(ctx, cfg)
		}
		if err == nil {
			p.notify(fmt.Sprintf("%s in the namespace %s; \"sandboxagent batch wait %s\" waits for the end",
				count(len(in.tasks), "task"), cluster.Namespace(), cfg.Name))
		}
		return err
	})
	if errors.Is(err, jobs.ErrExists) {
		return 0, usagef("--name: a batch or another Job of the name %s exists, or is being removed; "+
			"name another one, or remove it with \"batch cancel --remove\"", cfg.Name)
	}
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(p.std.out, cfg.Name)
	return codeDone, err
}

// readTemplate reads the template for the pods of agents.
func (s *submission) readTemplate() (err error) {
	file := s.c.String("agent-template")
	if file == "" {
		return nil
	}
	if s.template, err = readFile(file, maxPodTemplate); err == nil {
		s.mounts, err = jobs.Mounts(s.template)
	}
	if err != nil {
		return usagef("--agent-template: %s", err)
	}
	return nil
}

// config returns the submission of a batch.
func (s *submission) config(
	ctx context.Context, r *batchRunner, environ []string,
) (cfg jobs.Config, err error) {
	c := s.c
	b := &k8sBackend{}
	if err := b.parse(c); err != nil {
		return cfg, err
	}
	cfg = jobs.Config{
		Name:  cmp.Or(c.String("name"), batchNameOf(r.in.name)),
		Image: cmp.Or(c.String("agent-image"), agentImage()), Pull: b.config.PullPolicy(),
		Args: []string{workArgument}, Account: c.String("agent-account"),
		Secrets: c.StringSlice("model-secret"), Queue: c.String("queue"), KeepFor: c.Duration("keep-for"),
		Parallel: int32(r.settings.parallel), //nolint:gosec // it is bounded
		Retries:  int32(r.settings.retries),  //nolint:gosec // it is bounded
		Template: s.template,
		Labels:   parseLabels(c),
	}
	if err := jobs.CheckName(cfg.Name); err != nil {
		return cfg, usagef("--name: %s", err)
	}
	if cfg.KeepFor < 0 {
		return cfg, usagef("--keep-for %s is negative", cfg.KeepFor)
	}
	if n := r.settings.maxFailures; n > 0 {
		cfg.MaxFailed = new(int32(min(n-1, len(r.in.tasks)))) //nolint:gosec // it is bounded
	}
	order := workOrder{
		Submitted: time.Now(), Flags: []string{fmt.Sprintf("--retries=%d", cfg.Retries)},
	}
	if rules := s.p.line.rules; rules != nil {
		order.Rules = rules.Rules
	}
	if err := s.addFlags(ctx, &order, r.flags); err != nil {
		return cfg, err
	}
	for _, t := range r.in.tasks {
		input, err := s.input(ctx, t)
		if err != nil {
			return cfg, err
		}
		cfg.Inputs = append(cfg.Inputs, input)
	}
	text, err := json.Marshal(order)
	if err != nil {
		return cfg, err
	}
	if len(text) > maxWorkOrder {
		return cfg, usagef("the flags and the rules of the project have %d KiB, and at most %d KiB go "+
			"to a cluster; put rules into a file for --policy", len(text)>>10, maxWorkOrder>>10)
	}
	cfg.Files = s.files
	cfg.Variables = s.variables(r, environ)
	cfg.Variables[workVariable] = string(text)
	cfg.Egress, err = s.egress(r)
	return cfg, err
}

// batchNameOf returns a name for a batch of a file.
func batchNameOf(file string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(file))
	name = strings.Trim(strings.TrimLeft(name, "0123456789-"), "-")
	name = strings.TrimRight(name[:min(len(name), 30)], "-")
	return cmp.Or(name, "batch") + "-" + strings.ToLower(rand.Text()[:6])
}

// addFlags adds the flags of batch to an order, with the files that they name, and those of the
// user's configuration.
func (s *submission) addFlags(ctx context.Context, order *workOrder, flags []string) error {
	connect := (&k8sBackend{}).connectFlags()
	flags = slices.Clone(flags)
	for _, of := range []struct{ flag, file string }{{"models", "models.json"}, {"agents", "agents"}} {
		file := configFile(of.file)
		if _, err := os.Stat(file); lastValue(flags, of.flag) == "" && file != "" && err == nil {
			flags = append(flags, "--"+of.flag+"="+file)
		}
	}
	for _, f := range flags {
		name, value := cutValue(f)
		switch {
		case findFlag(connect, name) != nil, // the agents are in the cluster
			name == "workdir", name == "max-cost": // each task has them
			continue
		case name == "model":
			value, err := s.script(ctx, value, &order.Files)
			if err != nil {
				return err
			}
			f = "--model=" + value
		case name == "upload":
			value, err := s.upload(ctx, value, &order.Files)
			if err != nil {
				return usagef("--upload: %s", err)
			}
			f = "--upload=" + value
		case slices.Contains(fileKeys[:], name) &&
			(name != "policy" || !slices.Contains(policy.Presets(), value)):
			file, err := s.send(ctx, value, &order.Files)
			if err != nil {
				return usagef("--%s: %s", name, err)
			}
			f = "--" + name + "=" + file
		}
		order.Flags = append(order.Flags, f)
	}
	return nil
}

// input returns the input of a task.
func (s *submission) input(ctx context.Context, t batch.Task) (_ []byte, err error) {
	w := workTask{Task: t, Line: t.Line, Sent: sentFields{MaxCostUSD: s.c.Float64("max-cost")}}
	bad := func(field string, err error) error {
		return usagef("%s: %s: %s", t.Where(), field, err)
	}
	if w.Sent.Model, err = s.script(ctx, t.Model, &w.Files); err != nil {
		return nil, bad("model", err)
	}
	if w.Sent.Model == t.Model {
		w.Sent.Model = ""
	}
	for _, u := range t.Upload {
		moved, err := s.upload(ctx, u, &w.Files)
		if err != nil {
			return nil, bad("upload", err)
		}
		w.Sent.Upload = append(w.Sent.Upload, moved)
	}
	dir := cmp.Or(t.Workdir, s.c.String("workdir"), ".")
	switch {
	case t.Archive != "":
		if w.Sent.Archive, err = s.send(ctx, t.Archive, &w.Files); err != nil {
			return nil, bad("archive", err)
		}
	case s.isMounted(dir):
		w.Sent.Workdir = dir
	default:
		if w.Sent.Archive, err = s.workdir(ctx, dir, &w.Files); err != nil {
			return nil, bad("workdir", err)
		}
	}
	return json.Marshal(w)
}

// isMounted reports whether a name is one in a volume of the agents.
func (s *submission) isMounted(name string) bool {
	return slices.ContainsFunc(s.mounts, func(dir string) bool {
		return path.IsAbs(name) && isBelow(dir, name)
	})
}

// script sends the file of a model that is a script, and returns the model.
func (s *submission) script(
	ctx context.Context, model string, files *[]workFile,
) (string, error) {
	file, ok := strings.CutPrefix(model, scriptPrefix)
	if !ok {
		return model, nil
	}
	sent, err := s.send(ctx, file, files)
	return scriptPrefix + sent, err
}

// upload sends the source of an upload, and returns the upload.
func (s *submission) upload(
	ctx context.Context, text string, files *[]workFile,
) (string, error) {
	t, err := parseTransfer("upload", text)
	if err != nil {
		return "", err
	}
	sent, err := s.send(ctx, t.source, files)
	if err != nil || t.target == "" {
		return sent, err
	}
	return sent + ":" + t.target, nil
}

// send adds a file, or a directory, to those of agents, and returns its name there.
func (s *submission) send(
	ctx context.Context, source string, files *[]workFile,
) (string, error) {
	if s.isMounted(source) {
		return source, nil
	}
	file, err := s.pack(source, func() (data []byte, dir bool, err error) {
		fi, err := os.Stat(source)
		if err != nil {
			return nil, false, err
		}
		if !fi.IsDir() {
			data, err = readFile(source, jobs.MaxStored)
			return data, false, err
		}
		data, err = packTree(ctx, func(to *local.Environment) error {
			return envtransfer.Upload(ctx, to, source, ".", envtransfer.UploadOptions{
				SkipRepositories: s.skip(source),
			})
		})
		return data, true, err
	})
	if err != nil {
		return "", err
	}
	if !slices.Contains(*files, file) {
		*files = append(*files, file)
	}
	return file.Path, nil
}

// skip returns a function that notes the directories of version control systems which are not
// sent.
func (s *submission) skip(source string) func(string) {
	return func(name string) {
		s.p.notify(fmt.Sprintf("%q is skipped: the directories of version control systems may have "+
			"credentials; name it explicitly to send it",
			filepath.Join(source, filepath.FromSlash(name))))
	}
}

// workdir sends a working directory as an archive, without the files that git ignores.
func (s *submission) workdir(
	ctx context.Context, dir string, files *[]workFile,
) (string, error) {
	file, err := s.pack("workdir:"+dir, func() ([]byte, bool, error) {
		data, err := packTree(ctx, func(to *local.Environment) error {
			tree, err := workspace.Open(ctx, dir, workspace.Options{UploadIgnored: s.ignored})
			if err != nil {
				return err
			}
			for _, line := range tree.Warnings() {
				s.p.notify(line)
			}
			return errors.Join(tree.Upload(ctx, to), tree.Close())
		})
		return data, false, err
	})
	if err == nil && !slices.Contains(*files, file) {
		*files = append(*files, file)
	}
	return file.Path, err
}

// pack adds the data of a source, once.
func (s *submission) pack(
	source string, read func() (data []byte, dir bool, err error),
) (workFile, error) {
	if file, ok := s.packed[source]; ok {
		return file, nil
	}
	data, dir, err := read()
	mode := os.FileMode(0o600)
	if err == nil && !dir {
		if fi, err := os.Stat(source); err == nil {
			mode |= fi.Mode().Perm()
		}
		data, err = jobs.Compress(data)
	}
	if err != nil && !errors.Is(err, errTooLarge) {
		return workFile{}, err
	}
	if s.size += len(data); err != nil || s.size > jobs.MaxStored {
		return workFile{}, fmt.Errorf("the files of the tasks up to this one have more than %d MiB, "+
			"compressed; put them on a volume that --agent-template mounts", jobs.MaxStored>>20)
	}
	name := fmt.Sprintf("%x", sha256.Sum256(data))[:32]
	file := workFile{
		Name: name, Dir: dir, Mode: mode,
		Path: path.Join(jobs.WorkDir, "files", name, "workdir.tar.gz"),
	}
	if !strings.HasPrefix(source, "workdir:") {
		file.Path = path.Join(jobs.WorkDir, "files", name, filepath.Base(source))
	}
	s.files[name], s.packed[source] = data, file
	return file, nil
}

// packTree returns the compressed archive of a directory that fill fills.
func packTree(ctx context.Context, fill func(*local.Environment) error) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "sandboxagent-submit-")
	if err != nil {
		return nil, err
	}
	defer removeTree(dir)
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer e.Close() //nolint:errcheck // no command has run in it
	if err := fill(e); err != nil {
		return nil, err
	}
	return archiveTree(ctx, e, jobs.MaxStored)
}

// errTooLarge is the error of an archive that is larger than may be stored.
var errTooLarge = errors.New("the archive is too large")

// archiveTree returns the compressed archive of the working directory of an environment, or
// errTooLarge for more than most bytes.
func archiveTree(ctx context.Context, e *local.Environment, most int) ([]byte, error) {
	from, err := e.CopyOut(ctx, ".")
	if err != nil {
		return nil, err
	}
	defer from.Close() //nolint:errcheck // it was only read
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for err == nil && b.Len() <= most {
		_, err = io.CopyN(w, from, 1<<20)
	}
	if err == nil {
		return nil, errTooLarge
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() > most {
		return nil, errTooLarge
	}
	return b.Bytes(), nil
}

// variables returns the secret variables of agents: the keys of the models, unless a Secret has
// them, and those that --pass-var names.
func (s *submission) variables(r *batchRunner, environ []string) map[string]string {
	names := slices.Clone(r.passed)
	if !r.settings.keysElsewhere {
		names = append(names, anyKey)
		for model := range r.models {
			if p := findProvider(providerOf(model)); p != nil {
				names = append(names, p.keys...)
			}
		}
	}
	all := make(map[string]string)
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && slices.Contains(names, name) && value != "" {
			all[name] = value
		}
	}
	return all
}

// egress returns where agents connect to.
func (s *submission) egress(r *batchRunner) (e jobs.Egress, err error) {
	for _, name := range []string{modelCIDRName, apiCIDRName} {
		for _, cidr := range s.c.StringSlice(name) {
			if err := jobs.CheckCIDR(cidr); err != nil {
				return e, usagef("--%s: %s", name, err)
			}
		}
	}
	cidrs := s.c.StringSlice(modelCIDRName)
	models := []string{s.c.String("model")}
	for _, t := range r.in.tasks {
		models = append(models, t.Model)
	}
	var addresses []string
	for _, m := range models {
		if m != "" && !strings.HasPrefix(m, scriptPrefix) {
			addresses = append(addresses, r.address(s.c.String("model"), m, s.c.String("base-url")))
		}
	}
	e = egressTo(addresses, cidrs)
	e.Servers = s.c.StringSlice(apiCIDRName)
	ports := strings.Trim(fmt.Sprint(e.Ports), "[]")
	switch {
	case len(e.Ports) == 0 || len(cidrs) > 0:
	case len(e.CIDRs) == 0:
		s.p.notify("agents may reach these ports everywhere: " + ports + "; --model-cidr bounds that")
	default:
		s.p.notify(fmt.Sprintf("agents may reach the ports %s of %s; --model-cidr names others, "+
			"such as those behind a Service", ports, strings.Join(e.CIDRs, ", ")))
	}
	if len(e.Servers) == 0 {
		s.p.notify("agents may reach the port of the API server everywhere; --" + apiCIDRName +
			" bounds that")
	}
	return e, nil
}

// egressTo returns the ports of the addresses of models, of which an empty one is that of a
// provider. Without ranges of addresses the models' own count, if they are no names.
func egressTo(addresses, cidrs []string) (e jobs.Egress) {
	var own []string
	for _, address := range addresses {
		port := int32(443)
		host := net.IP(nil)
		if u, err := url.Parse(address); err == nil && address != "" {
			if u.Scheme == "http" {
				port = 80
			}
			if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
				port = int32(n)
			}
			host = net.ParseIP(u.Hostname())
		}
		switch {
		case host == nil:
		case host.To4() != nil:
			own = append(own, host.String()+"/32")
		default:
			own = append(own, host.String()+"/128")
		}
		e.Ports = append(e.Ports, port)
	}
	slices.Sort(e.Ports)
	e.Ports = slices.Compact(e.Ports)
	e.CIDRs = cidrs
	if len(cidrs) == 0 && len(own) == len(addresses) {
		slices.Sort(own)
		e.CIDRs = slices.Compact(own)
	}
	return e
}
