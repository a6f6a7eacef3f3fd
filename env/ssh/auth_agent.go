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
	// agentListTime bounds how long an agent takes to say which keys it has.
	agentListTime = 5 * time.Second
	// agentSignTime bounds how long it takes to sign, which may be by the hand of a person.
	agentSignTime = 2 * time.Minute
)

// agentKeys are the keys of an ssh-agent.
type agentKeys struct {
	conn    net.Conn
	signers []gossh.Signer
	stop    func() bool
}

// openAgent asks the agent behind a socket for its keys. The caller closes it.
func openAgent(ctx context.Context, socket string) (*agentKeys, error) {
	ask, cancel := context.WithTimeout(ctx, agentListTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ask, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	a := &agentKeys{conn: conn}
	a.stop = context.AfterFunc(ctx, func() { _ = conn.Close() }) // whoever uses it gets an error
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
