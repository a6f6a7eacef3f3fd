package ssh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// maxBanner bounds the stored banner of a server.
const maxBanner = 2 << 10

// login authenticates the user to one host. Only the goroutine of the handshake uses it.
type login struct {
	route *route
	hop   *hop
	// clock cancels the handshake.
	clock *time.Timer
	agent *agentKeys

	// signers are the keys in their order, after collect, and keys their descriptions.
	collected bool
	signers   []gossh.Signer
	keys      []string
	unused    []string
	// failed is the index of the last key that could not sign, or -1; err is the first such error.
	failed int
	err    error
	// replied means that the server listed its methods; partial that it accepted a key and
	// requires a second factor.
	replied bool
	partial bool
	offered []string
	banner  strings.Builder
}

// config returns the configuration of the handshake.
func (l *login) config(ctx context.Context, check *hostCheck) *gossh.ClientConfig {
	collect := func() ([]gossh.Signer, error) { return l.collect(ctx), nil }
	return &gossh.ClientConfig{
		User: l.hop.user,
		Auth: []gossh.AuthMethod{gossh.PublicKeysCallback(collect)},
		AuthCallback: func(c *gossh.ClientAuthContext) (gossh.AuthMethod, error) {
			return l.next(ctx, c), nil
		},
		HostKeyCallback:   check.check,
		HostKeyAlgorithms: check.algorithms(),
		ClientVersion:     "SSH-2.0-sandboxagent",
		BannerCallback: func(text string) error {
			l.banner.WriteString(text[:min(len(text), maxBanner-min(maxBanner, l.banner.Len()))])
			return nil
		},
	}
}

// next returns the next method, or nil to leave the choice to the library. The library tries no
// key after one that cannot sign; next makes it try the rest.
func (l *login) next(ctx context.Context, c *gossh.ClientAuthContext) gossh.AuthMethod {
	l.replied = true
	l.offered = c.AllowedMethods
	l.partial = len(c.PartialSuccessMethods) > 0
	at := l.failed
	l.failed = -1
	if at < 0 || at+1 >= len(l.signers) || !slices.Contains(c.AllowedMethods, "publickey") ||
		ctx.Err() != nil {
		return nil
	}
	return gossh.PublicKeys(l.signers[at+1:]...)
}

// pause stops the clock while a person acts, until the result is called.
func (l *login) pause() func() {
	if !l.clock.Stop() {
		return func() {} // it is over
	}
	return func() { l.clock.Reset(l.hop.timeout) }
}

// collect returns the keys in their order: those of files, over the agent where it has them; then
// the agent's others; then encrypted ones that the caller did not name.
func (l *login) collect(ctx context.Context) []gossh.Signer {
	if l.collected {
		return l.signers
	}
	l.collected = true
	l.openAgent(ctx)
	certs := l.certificates()
	var late []*keyFile
	for _, id := range l.hop.identities {
		k, err := readKeyFile(id)
		if err != nil {
			l.skip(id, err)
			continue
		}
		switch held := l.held(k.public); {
		case len(held) > 0:
			for _, s := range held {
				l.add(s, k.path+", ssh-agent", certs)
			}
		case k.signer != nil:
			l.addSigner(k.public, k.path, certs, k.use)
		case k.locked == nil:
			l.skip(id, &keyError{file: k.path, reason: "is a public key only, and ssh-agent does not " +
				"have the private one", absent: true})
		case !k.named:
			late = append(late, k)
		default:
			l.addLocked(ctx, k, certs)
		}
	}
	if l.agent != nil && !l.hop.identitiesOnly {
		for _, s := range l.agent.signers {
			l.add(s, "ssh-agent", certs)
		}
	}
	for _, k := range late {
		l.addLocked(ctx, k, certs)
	}
	return l.signers
}

// use signs with a key that is not encrypted.
func (k *keyFile) use(rand io.Reader, data []byte, algorithm string) (*gossh.Signature, error) {
	return signWith(k.signer, rand, data, algorithm)
}

// skip records why a key is not tried. Only keys that the caller named have to exist.
func (l *login) skip(id identityFile, err error) {
	var k *keyError
	if id.named || !errors.As(err, &k) || !k.absent {
		l.unused = append(l.unused, err.Error())
	}
}

// openAgent gets the keys of ssh-agent, if it is configured.
func (l *login) openAgent(ctx context.Context) {
	if l.hop.agent == "" {
		return
	}
	a, err := openAgent(ctx, l.hop.agent)
	if err != nil {
		l.unused = append(l.unused, cleanText(err.Error()))
		return
	}
	l.agent = a
}

// certificates returns the user's certificates.
func (l *login) certificates() []*gossh.Certificate {
	files := slices.Clone(l.hop.certificates)
	for _, id := range l.hop.identities {
		files = append(files, strings.TrimSuffix(id.path, ".pub")+"-cert.pub")
	}
	var certs []*gossh.Certificate
	for _, f := range files {
		if c := readCertificate(f); c != nil {
			certs = append(certs, c)
		}
	}
	return certs
}

// held returns the agent's signers for a key: with certificates first.
func (l *login) held(public gossh.PublicKey) []gossh.Signer {
	if l.agent == nil || public == nil {
		return nil
	}
	var plain, certified []gossh.Signer
	for _, s := range l.agent.signers {
		key := s.PublicKey()
		switch {
		case !bytes.Equal(plainKey(key), plainKey(public)):
		case bytes.Equal(key.Marshal(), plainKey(key)):
			plain = append(plain, s)
		default:
			certified = append(certified, s)
		}
	}
	return append(certified, plain...)
}

// add adds a key of the agent.
func (l *login) add(s gossh.Signer, from string, certs []*gossh.Certificate) {
	held := l.agent
	l.addSigner(s.PublicKey(), from, certs, func(
		rand io.Reader, data []byte, algorithm string,
	) (*gossh.Signature, error) {
		defer l.pause()()
		err := held.patient()
		if err == nil {
			var sig *gossh.Signature
			if sig, err = signWith(s, rand, data, algorithm); err == nil {
				return sig, nil
			}
		}
		return nil, &keyError{file: from, reason: "cannot sign: " + cleanText(err.Error()), err: err}
	})
}

// addLocked adds an encrypted key. Its passphrase is requested after the server has accepted its
// public part; at once, if the public part is encrypted too.
func (l *login) addLocked(ctx context.Context, k *keyFile, certs []*gossh.Certificate) {
	if k.public == nil && !k.named {
		l.unused = append(l.unused, (&keyError{
			file:   k.path,
			reason: "is encrypted; name it, or put its public part beside it",
		}).Error())
		return
	}
	if k.public == nil {
		s, err := l.route.open(ctx, k, l.pause)
		if err != nil {
			l.err = cmp.Or(l.err, err)
			return
		}
		k.public = s.PublicKey()
	}
	l.addSigner(k.public, k.path, certs, func(
		rand io.Reader, data []byte, algorithm string,
	) (*gossh.Signature, error) {
		s, err := l.route.open(ctx, k, l.pause)
		if err != nil {
			return nil, err
		}
		return signWith(s, rand, data, algorithm)
	})
}

// signFunc signs data with an algorithm.
type signFunc func(rand io.Reader, data []byte, algorithm string) (*gossh.Signature, error)

// addSigner adds a key, after its combinations with the certificates for it.
func (l *login) addSigner(
	public gossh.PublicKey, from string, certs []*gossh.Certificate, sign signFunc,
) {
	for _, c := range certs {
		// A certificate for another key is an error.
		if s, err := gossh.NewCertSigner(c, l.signer(public, len(l.signers), sign)); err == nil {
			l.put(s, from+", certificate")
		}
	}
	l.put(l.signer(public, len(l.signers), sign), from)
}

// signer returns a signer that records its failure in l.
func (l *login) signer(public gossh.PublicKey, at int, sign signFunc) *keySigner {
	return &keySigner{public, func(
		rand io.Reader, data []byte, algorithm string,
	) (*gossh.Signature, error) {
		sig, err := sign(rand, data, algorithm)
		if err != nil {
			l.failed = at
			l.err = cmp.Or(l.err, err)
		}
		return sig, err
	}}
}

// put appends a signer, unless its key is a duplicate.
func (l *login) put(s gossh.Signer, from string) {
	key := s.PublicKey()
	for _, other := range l.signers {
		if bytes.Equal(other.PublicKey().Marshal(), key.Marshal()) {
			return
		}
	}
	l.signers = append(l.signers, s)
	kind := key.Type()
	if parsed, err := gossh.ParsePublicKey(plainKey(key)); err == nil {
		key = parsed
	}
	l.keys = append(l.keys,
		fmt.Sprintf("%s %s (%s)", kind, gossh.FingerprintSHA256(key), cleanText(from)))
}

// explain returns the *AuthError for a failed handshake, or nil if it failed for another reason.
func (l *login) explain(err error) error {
	var broken *net.OpError
	if l.err == nil && (!l.replied || errors.As(err, &broken) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)) {
		return nil
	}
	return &AuthError{
		User: l.hop.user, Host: l.hop.address(), Offered: l.offered, Keys: l.keys, Unused: l.unused,
		Banner: l.banner.String(), Err: cmp.Or(l.err, err), partial: l.partial,
	}
}
