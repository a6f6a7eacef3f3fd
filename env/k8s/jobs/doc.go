// Package jobs runs a program once for each of many inputs, in pods of a Kubernetes cluster, and
// keeps the results in the cluster until somebody reads them. The machine that submits may go
// away.
//
// A submission is an Indexed Job and objects that it owns: the inputs, files and results in
// ConfigMaps, the secrets of the program in a Secret, and a NetworkPolicy. When the Job is
// deleted, the cluster deletes the others. Nothing is installed in the cluster.
//
// The program in a pod calls OpenWorker. It reads its input, and stores exactly one result.
package jobs
