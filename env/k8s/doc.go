// Package k8s makes environments in Kubernetes pods.
//
// [Connect] selects a cluster as kubectl does, and [Cluster.Open] creates one pod for one
// environment. The pod obeys the Pod Security Standard "restricted": it runs as an ordinary user
// without capabilities, with a read-only root, limited resources and no credentials of the cluster.
// Its process 1 is the helper, package sandboxd, which an init container puts in place, and which
// all clients reach by the subresource exec. The pod completes when the helper was without a client
// for the TTL, so that nothing runs on in the cluster; [Cluster.Collect] removes such pods.
//
// Nothing else is installed in the cluster, and no permission is needed outside the namespace.
package k8s
