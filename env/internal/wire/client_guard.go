package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

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
	typePing         = 0x6
	typeGoAway       = 0x7
	typeWindowUpdate = 0x8
	typeContinuation = 0x9
	// flagAck is the flag of settings and pings that answer others.
	flagAck = 0x1
	// settingSize is the size of one of the settings; the others are those that have bounds.
	settingSize      = 6
	settingPush      = 0x2
	settingWindow    = 0x4
	settingFrameSize = 0x5
	settingConnect   = 0x8
	// preface is how much a client says before its first frame.
	preface = 24
)

// frameScan finds the heads of the frames of HTTP/2 in what passes.
type frameScan struct {
	head [frameHead]byte
	have int // of the head
	left int // of the payload
}

// next goes on to the end of a head or of a piece of a payload, whichever comes first. It returns the piece, what is behind
// it, and whether a head is complete.
func (s *frameScan) next(p []byte) (payload, rest []byte, head bool) {
	if s.left > 0 {
		n := min(s.left, len(p))
		s.left -= n
		return p[:n], p[n:], false
	}
	n := copy(s.head[s.have:], p)
	if s.have += n; s.have < frameHead {
		return nil, p[n:], false
	}
	s.have, s.left = 0, int(binary.BigEndian.Uint32(s.head[:4])>>8)
	return nil, p[n:], true
}

// id returns the number of the stream that the last head is of.
func (s *frameScan) id() uint32 { return binary.BigEndian.Uint32(s.head[5:]) &^ (1 << 31) }

// frameGuard looks at the frames of HTTP/2 that a server sends. What net/http would end the connection for without telling
// why, or complain about in the log of the process, is a violation here.
type frameGuard struct {
	received frameScan
	begun    bool // the settings have come
	acked    atomic.Bool
	asked    atomic.Bool // this side has sent a ping
	answered atomic.Bool // and the other has answered one
	entry    [settingSize]byte
	have     int // of entry

	sent   frameScan
	opened atomic.Uint32 // the last stream that this side has opened
}

// note looks at what is sent next.
func (g *frameGuard) note(p []byte) {
	for head := false; len(p) > 0; {
		if _, p, head = g.sent.next(p); !head {
			continue
		}
		switch kind, ack := g.sent.head[3], g.sent.head[4]&flagAck != 0; {
		case kind == typeHeaders:
			g.opened.Store(max(g.opened.Load(), g.sent.id()))
		case kind == typePing && !ack:
			g.asked.Store(true)
		}
	}
}

// check looks at what has come next.
func (g *frameGuard) check(p []byte) error {
	for len(p) > 0 {
		payload, rest, head := g.received.next(p)
		var err error
		if head {
			err = g.frame()
		} else if g.received.head[3] == typeSettings {
			err = g.settings(payload)
		}
		if err != nil {
			return err
		}
		p = rest
	}
	return nil
}

// frame looks at the head of a frame.
func (g *frameGuard) frame() error {
	size, kind, id := g.received.left, g.received.head[3], g.received.id()
	ack := g.received.head[4]&flagAck != 0
	fine := g.begun || kind == typeSettings
	switch kind {
	case typeData, typeHeaders:
		fine = fine && id != 0 && id <= g.opened.Load()
	case typeContinuation:
		fine = fine && id != 0
	case typeReset:
		fine = fine && id != 0 && size == 4
	case typeWindowUpdate:
		fine = fine && size == 4
	case typePing:
		fine = fine && id == 0 && size == 8
		if fine && ack && g.asked.Load() {
			g.answered.Store(true)
		}
	case typeGoAway:
		fine = fine && id == 0 && size >= 8
	case typeSettings:
		again := g.acked.Load()
		fine = id == 0 && size%settingSize == 0 && (!ack || size == 0 && !again) // this side sends them once
		g.begun = true
		g.acked.Store(again || ack)
	default:
		fine = false
	}
	if !fine || size > readFrame {
		return fmt.Errorf("%w: a frame of HTTP/2 of type %d with %d bytes for stream %d", env.ErrProtocol, kind, size, id)
	}
	return nil
}

// settings looks at a part of the payload of a frame with settings.
func (g *frameGuard) settings(p []byte) error {
	for len(p) > 0 {
		n := copy(g.entry[g.have:], p)
		g.have, p = g.have+n, p[n:]
		if g.have < settingSize {
			return nil
		}
		g.have = 0
		id, value := binary.BigEndian.Uint16(g.entry[:]), binary.BigEndian.Uint32(g.entry[2:])
		least, most := uint32(0), uint32(math.MaxUint32)
		switch id {
		case settingPush, settingConnect:
			most = 1
		case settingWindow:
			most = math.MaxInt32
		case settingFrameSize:
			least, most = 1<<14, 1<<24-1
		}
		if value < least || value > most {
			return fmt.Errorf("%w: setting %d of HTTP/2 is %d", env.ErrProtocol, id, value)
		}
	}
	return nil
}
