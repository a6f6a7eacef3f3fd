// Command kube is the programs of a Kubernetes cluster in one: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet and kube-proxy. Its first argument selects one,
// which gets the others. It is a module of its own, so that programs that import sandboxagent do not
// depend on all of Kubernetes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs make the commands. Only one may be made in a process: their feature gates are global.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": manager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "etcd" {
		etcdmain.Main(os.Args[1:])
		return
	}
	var program func() *cobra.Command
	if len(os.Args) > 1 {
		program = programs[os.Args[1]]
	}
	if program == nil {
		fmt.Fprintln(os.Stderr, "usage: kube PROGRAM [ARG...], where PROGRAM is such as kubelet")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(cli.Run(program()))
}
