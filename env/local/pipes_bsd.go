//go:build unix && !linux

package local

// fionread is FIONREAD, which has this value on every BSD.
const fionread = 0x4004667f
