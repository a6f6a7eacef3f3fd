package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// frameHead is the size of the head of a frame of HTTP/2.
	frameHead = 9
	// Types of frames of HTTP/2.
	typeData         = 0x0
	typeHeaders      = 0x1
	typeReset        = 0x3
	typeSettings     = 0x4
	typePush         = 0x5
	typePing         = 0x6
	typeGoAway       = 0x7
	typeWindowUpdate = 0x8
	typeContinuation = 0x9
)

// frameGuard looks at the heads of the frames of HTTP/2 that a server sends. What net/http would complain about in the log of
// the process, for each frame once, ends the connection instead.
type frameGuard struct {
	head  [frameHead]byte
	have  int  // of the head
	left  int  // of the payload
	begun bool // the settings have come
}

// check looks at what comes next.
func (g *frameGuard) check(p []byte) error {
	for len(p) > 0 {
		if g.left > 0 {
			n := min(g.left, len(p))
			g.left, p = g.left-n, p[n:]
			continue
		}
		n := copy(g.head[g.have:], p)
		g.have, p = g.have+n, p[n:]
		if g.have < frameHead {
			return nil
		}
		g.have = 0
		g.left = int(binary.BigEndian.Uint32(g.head[:4]) >> 8)
		kind := g.head[3]
		switch kind {
		case typeSettings:
			g.begun = true
		case typeData, typeHeaders, typeReset, typePush, typePing, typeGoAway, typeWindowUpdate, typeContinuation:
		default:
			return fmt.Errorf("%w: a frame of HTTP/2 of type %d", env.ErrProtocol, kind)
		}
		if !g.begun {
			return fmt.Errorf("%w: HTTP/2 without settings", env.ErrProtocol)
		}
	}
	return nil
}
