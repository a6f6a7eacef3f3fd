package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// maxDocument and maxRequest bound a document and a request, in bytes.
	maxDocument = 256 << 10
	maxRequest  = 64 << 10
	// maxEntries bounds each list and map of a document.
	maxEntries = 1024
)

// Outcomes of attempts. Any other outcome is the name of a system error, such as "EPERM", or the
// text of an error.
const (
	outcomeOK       = "ok"
	outcomeNone     = "none"
	outcomeNoAnswer = "no answer" // of name servers
	outcomeSkipped  = "skipped: the network has a route"
)

// request lists the attempts of the probe. An attempt is a verb and its object, such as "write
// /tmp".
type request struct {
	Tries []string `json:"tries"`
	// Links are paths whose symlinks are resolved.
	Links []string `json:"links,omitempty"`
}

// document is the report of a probe. It comes from a sandbox and is untrusted.
type document struct {
	// Status holds lines of /proc/self/status, such as "CapEff".
	Status map[string]string `json:"status"`
	// Tries holds the outcome of each attempt of the request.
	Tries map[string]string `json:"tries"`
	// Limits are "pids", "memory" and "swap" in bytes, and "cpus"; each is a decimal number or "max".
	Limits map[string]string `json:"limits"`
	// Namespaces are the inode numbers of the namespaces by kind, such as "pid".
	Namespaces map[string]uint64 `json:"namespaces"`
	Mounts     []mountPoint      `json:"mounts"`
	// Links are the paths of the request that lead elsewhere, and their targets.
	Links map[string]string `json:"links,omitempty"`
	// Boot is the boot ID of the kernel.
	Boot string `json:"boot,omitempty"`
	// Routes are the network interfaces, except lo, that have a route; nil if they are not known.
	Routes []string `json:"routes"`
	// Vars are the names of the environment variables.
	Vars []string `json:"vars"`
}

// mountPoint is a mounted file system.
type mountPoint struct {
	Point string `json:"point"`
	Type  string `json:"type"`
	// Root is the mounted path inside the file system.
	Root string `json:"root"`
	// Options are those of the mount, such as "rw,nosuid".
	Options  string `json:"options"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Probe reads a request of Run from r, inspects the sandbox that this process runs in, and writes
// the report to w. It is the helper's subcommand "probe". Each attempt undoes its effect.
// Connections to other machines are attempted only where no packet can leave. The end of ctx ends
// attempts that wait.
func Probe(ctx context.Context, r io.Reader, w io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(r, maxRequest+1))
	if err != nil {
		return err
	}
	var q request
	if err := decode(data, maxRequest, &q); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	d, err := inspect(ctx, q)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(d)
}

// decodeDocument reads the report of a probe and checks its bounds.
func decodeDocument(data []byte) (document, error) {
	var d document
	if err := decode(data, maxDocument, &d); err != nil {
		return document{}, err
	}
	for name, n := range map[string]int{
		"status": len(d.Status), "tries": len(d.Tries), "limits": len(d.Limits),
		"namespaces": len(d.Namespaces), "mounts": len(d.Mounts), "links": len(d.Links),
		"routes": len(d.Routes), "vars": len(d.Vars),
	} {
		if n > maxEntries {
			return document{}, fmt.Errorf("%d %s, more than %d", n, name, maxEntries)
		}
	}
	return d, nil
}

// decode reads one JSON value without unknown fields and without trailing data.
func decode(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("more than %d bytes", limit)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data")
	}
	return nil
}
