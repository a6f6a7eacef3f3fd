package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/env/k8s"
)

func TestPackInputs(t *testing.T) {
	large := bytes.Repeat([]byte("x"), partSize)
	for name, inputs := range map[string][][]byte{
		"one":   {[]byte("a")},
		"empty": {{}, []byte("a"), {}},
		"many":  {[]byte("a"), large, []byte("b"), large, large, []byte("c")},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := packInputs(inputs)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			for i, part := range p.parts {
				if p.bounds[i] != len(got) {
					t.Errorf("part %d begins with %d, not %d", i, p.bounds[i], len(got))
				}
				list, err := unpackInputs(part)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, list...)
			}
			if !slices.EqualFunc(got, inputs, bytes.Equal) || len(p.bounds) != len(p.parts) {
				t.Errorf("%d inputs of %d in %d parts", len(got), len(inputs), len(p.parts))
			}
		})
	}
}

func TestParseIndexes(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "0": {0}, "1,3-5,7": {1, 3, 4, 5, 7},
	} {
		got, err := parseIndexes(text, 8)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"8", "x", "3-1", "1,,2", "-1", "0-8", "1-"} {
		if got, err := parseIndexes(text, 8); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzParseIndexes(f *testing.F) {
	f.Add("1,3-5,7")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseIndexes(text, 100)
		if err != nil {
			return
		}
		for _, i := range all {
			if i < 0 || i >= 100 {
				t.Fatalf("%d of %q", i, text)
			}
		}
	})
}

func testConfig() Config {
	return Config{
		Name: "tasks", Image: "agent", Args: []string{"work"}, Inputs: [][]byte{[]byte("a")},
		Parallel: 3, Retries: 2, Account: "agents", Variables: map[string]string{"KEY": "secret"},
		Secrets: []string{"keys"}, MaxFailed: new(int32(4)), KeepFor: 90 * time.Second,
	}
}

// TestJob has the pods of a Job: nothing weakens them, and what the template sets stays.
func TestJob(t *testing.T) {
	cfg := testConfig()
	cfg.Template = []byte(`
metadata: {labels: {team: search}}
spec:
  nodeSelector: {disk: ssd}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers:
  - {name: other, image: other}
  - name: agent
    env: [{name: PROXY, value: p}]
    volumeMounts: [{name: data, mountPath: /data}]
`)
	job, err := cfg.job([]int{0})
	if err != nil {
		t.Fatal(err)
	}
	s := job.Spec.Template.Spec
	k := s.Containers[0]
	if len(s.Containers) != 2 || k.Name != container || k.Image != "agent" ||
		s.NodeSelector["disk"] != "ssd" || job.Spec.Template.Labels["team"] != "search" ||
		job.Spec.Template.Labels[labelJob] != "tasks" || s.ServiceAccountName != "agents" {
		t.Errorf("the pod is %+v", s)
	}
	c := k.SecurityContext
	if !*s.SecurityContext.RunAsNonRoot || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || *s.EnableServiceLinks {
		t.Errorf("the security context is %+v, %+v", s.SecurityContext, c)
	}
	for _, e := range k.Env {
		if strings.Contains(e.Value, "secret") {
			t.Errorf("the variable %s has the secret in the pod", e.Name)
		}
	}
	if !*job.Spec.Suspend || *job.Spec.Completions != 1 || *job.Spec.Parallelism != 3 {
		t.Errorf("the Job is %+v", job.Spec)
	}
	if spec := job.Spec; *spec.BackoffLimitPerIndex != 2 || *spec.MaxFailedIndexes != 4 ||
		*spec.TTLSecondsAfterFinished != 90 || spec.PodFailurePolicy == nil {
		t.Errorf("the Job is %+v", spec)
	}
	cfg.Inputs, cfg.MaxFailed = make([][]byte, manyInputs+1), nil
	if job, err = cfg.job([]int{0}); err != nil || *job.Spec.MaxFailedIndexes != maxFailed {
		t.Errorf("many inputs: %v", err)
	}
	if _, err = cfg.job(make([]int, maxBounds)); err == nil ||
		!strings.Contains(err.Error(), "split them") {
		t.Errorf("many parts: %v", err)
	}
	secrets := ""
	for _, from := range k.EnvFrom {
		secrets += from.SecretRef.Name + " "
	}
	if !strings.Contains(secrets, "keys ") || len(s.Containers[1].EnvFrom) > 0 {
		t.Errorf("the agent has the secrets %q, the other one %+v", secrets, s.Containers[1].EnvFrom)
	}
	if dirs, err := Mounts(cfg.Template); err != nil || !slices.Equal(dirs, []string{"/data"}) {
		t.Errorf("mounts %v, %v", dirs, err)
	}
	for _, template := range []string{"spec: {x: 1}", "spec: [", "kind: Pod\nspec: {nodeName: 3}"} {
		cfg.Template = []byte(template)
		if _, err := cfg.job([]int{0}); err == nil {
			t.Errorf("%s: no error", template)
		}
	}
}

// TestEgress has where agents may connect to.
func TestEgress(t *testing.T) {
	for _, tt := range []struct {
		egress Egress
		want   string
	}{
		{Egress{}, "UDP 53, TCP 53 to all; TCP 6443 to all; TCP 3128 to all"},
		{
			Egress{Ports: []int32{443}},
			"UDP 53, TCP 53 to all; TCP 6443 to all; TCP 3128 to all; TCP 443 to all",
		},
		{
			Egress{
				Ports: []int32{443, 80}, CIDRs: []string{"10.1.0.0/16", "10.2.0.0/16"},
				Servers: []string{"10.0.0.1/32", "10.0.0.2/32"},
			},
			"UDP 53, TCP 53 to all; TCP 6443 to 10.0.0.1/32 10.0.0.2/32; TCP 3128 to all; " +
				"TCP 443, TCP 80 to 10.1.0.0/16 10.2.0.0/16",
		},
	} {
		var rules []string
		for _, r := range tt.egress.rules([]int32{6443},
			[]corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}}) {
			var ports, to []string
			for _, p := range r.Ports {
				ports = append(ports, string(*p.Protocol)+" "+p.Port.String())
			}
			for _, peer := range r.To {
				to = append(to, peer.IPBlock.CIDR)
			}
			rules = append(rules, strings.Join(ports, ", ")+" to "+
				cmp.Or(strings.Join(to, " "), "all"))
		}
		if got := strings.Join(rules, "; "); got != tt.want {
			t.Errorf("%+v: %s", tt.egress, got)
		}
	}
}

func TestProxyPorts(t *testing.T) {
	got := proxyPorts([]corev1.EnvVar{
		{Name: "HTTPS_PROXY", Value: "http://proxy:3128"},
		{Name: "https_proxy", Value: "http://proxy:3128"},
		{Name: "http_proxy", Value: "https://proxy"},
		{Name: "HTTP_PROXY", Value: "http://proxy"},
		{Name: "HTTPS_PROXY"},
		{Name: "HTTPS_PROXY", Value: "http://proxy:x"},
		{Name: "OTHER", Value: "http://other:99"},
	})
	if want := []int32{3128, 443, 80}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFailurePolicy has the order of rules, of which the first that matches counts: a drained
// agent may exit with any code.
func TestFailurePolicy(t *testing.T) {
	var got []string
	for _, r := range failurePolicy().Rules {
		text := string(r.Action)
		if r.OnExitCodes != nil {
			text += fmt.Sprint(r.OnExitCodes.Values)
		}
		for _, c := range r.OnPodConditions {
			text += fmt.Sprintf("[%s=%s]", c.Type, c.Status)
		}
		got = append(got, text)
	}
	want := []string{
		"Ignore[DisruptionTarget=True]", "FailIndex[1]", "FailJob[3]", "Ignore[4]",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPatiently ends the wait for a server that does not answer. The error has both reasons.
func TestPatiently(t *testing.T) {
	over := errors.New("the time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := patiently(ctx, func() (int, error) {
		cancel(over)
		return 0, &k8s.ClusterError{Err: errors.New("no answer")}
	})
	var cluster *k8s.ClusterError
	if !errors.Is(err, over) || !errors.As(err, &cluster) {
		t.Error(err)
	}
}
