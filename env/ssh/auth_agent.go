package ssh

import (
	"context"
	"fmt"
	"net"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

const (
	// agentListTime bounds the wait for the list of keys.
	agentListTime = 5 * time.Second
	// agentSignTime bounds the wait for a signature, for which a person may touch a token.
	agentSignTime = 2 * time.Minute
)

// agentKeys are the keys of an ssh-agent.
type agentKeys struct {
	conn    net.Conn
	signers []gossh.Signer
	stop    func() bool
}

// openAgent gets the keys of the agent behind a socket. The caller closes it.
func openAgent(ctx context.Context, socket string) (*agentKeys, error) {
	dialCtx, cancel := context.WithTimeout(ctx, agentListTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(dialCtx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	a := &agentKeys{conn: conn}
	a.stop = context.AfterFunc(ctx, func() { _ = conn.Close() }) // its users get an error
	if err = conn.SetDeadline(time.Now().Add(agentListTime)); err == nil {
		a.signers, err = agent.NewClient(conn).Signers()
	}
	if err != nil {
		a.close()
		return nil, fmt.Errorf("ssh-agent %s: %w", socket, err)
	}
	return a, nil
}

// patient gives the agent the time of a signature.
func (a *agentKeys) patient() error {
	return a.conn.SetDeadline(time.Now().Add(agentSignTime))
}

func (a *agentKeys) close() {
	if a != nil {
		a.stop()
		_ = a.conn.Close() // nothing was written that could be lost
	}
}
