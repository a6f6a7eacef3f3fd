// Package launch starts helpers, and puts sandboxes around them.
package launch
