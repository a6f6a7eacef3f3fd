// Package docker opens environments in throwaway containers.
//
// An Engine is a Docker daemon, local or remote. Engine.Open creates a container with the least
// privileges (see Config) and starts the helper, the program sandboxd, as its PID 1, from a
// read-only volume; an image needs neither a shell nor tools. The client talks to the helper over
// the container's stdin and stdout. When that stream breaks, it opens a new one by the daemon's exec
// call; commands continue meanwhile.
//
// Nothing is left behind. The container removes itself when the helper ends, and the helper ends
// when it has had no client for Config.TTL. A container that was never started, because its client
// died, is found by its labels: see List and Collect. Images, and one volume per version of the
// helper, are kept for later containers.
package docker
