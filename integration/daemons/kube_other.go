//go:build !linux

package daemons

import (
	"context"
	"errors"
)

var errKube = errors.New("a cluster runs on Linux only")

// Kube is a cluster of one node.
type Kube struct{}

// KubeAvailable returns why this machine cannot start a cluster; nil means that it can.
func KubeAvailable() error { return errKube }

// BuildKube builds the programs of a cluster, on Linux only.
func BuildKube(context.Context, string) (string, error) { return "", errKube }

// StartKube starts a cluster, on Linux only.
func StartKube(context.Context, *Docker, ...string) (*Kube, error) { return nil, errKube }

// Config is a kubeconfig file of an administrator.
func (k *Kube) Config() string { return "" }

// Stop ends the cluster.
func (k *Kube) Stop() error { return errKube }

// State describes the cluster.
func (k *Kube) State() string { return "" }
