// Package docker runs an environment in a container of its own, which is thrown away in the end.
//
// An Engine is a Docker daemon, local or remote. Open makes a container with everything taken away that commands do not
// need (see Config), starts the helper in it as process 1, from a volume that commands can only read, and talks to it over
// one stream. So an image needs nothing: no shell, no tools. When the stream breaks, a new one is made through the daemon's
// exec call, and commands go on meanwhile.
//
// Nothing is left behind. The container removes itself when the helper ends, and the helper ends when it has had no client
// for Config.TTL. What no helper can see to, a container that was made and never started because its client died, is
// found by its labels: List and Collect.
//
// What stays on purpose are the images and one volume with the helper, which all containers of the same version share.
package docker
