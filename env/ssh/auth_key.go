package ssh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

const (
	// maxKeyFile bounds a file with a key or a certificate.
	maxKeyFile = 256 << 10
	// maxPrompts bounds the questions for one passphrase.
	maxPrompts = 3
)

// keyFile is the content of a key file.
type keyFile struct {
	identityFile
	// public may be nil if the key is encrypted.
	public gossh.PublicKey
	// signer is nil if the key is encrypted, or only its public part is known.
	signer gossh.Signer
	// locked is the content of an encrypted file.
	locked []byte
}

// checkIdentity returns an error if a file that the caller named is not a usable key.
func checkIdentity(file string) error {
	if _, err := readKeyFile(identityFile{path: file, named: true}); err != nil {
		return badConfig("identity", "%s", err)
	}
	return nil
}

// readKeyFile reads a private key, or a public one, which selects a key of the agent. Errors are
// *keyError.
func readKeyFile(id identityFile) (*keyFile, error) {
	k := &keyFile{identityFile: id}
	bad := func(err error, format string, args ...any) (*keyFile, error) {
		return nil, &keyError{file: id.path, reason: fmt.Sprintf(format, args...), err: err}
	}
	beside := readPublicKey(id.path + ".pub")
	data, err := readRegular(id.path, maxKeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && beside != nil:
		k.public = beside
		return k, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &keyError{file: id.path, reason: "does not exist", err: err, absent: true}
	case err != nil:
		return bad(err, "cannot be read: %s", cleanText(err.Error()))
	}
	if public, _, _, _, err := gossh.ParseAuthorizedKey(data); err == nil && !bytes.Contains(data,
		[]byte("PRIVATE KEY-----")) {
		k.public = public
		return k, nil
	}
	if mode, ok := tooOpen(id.path); ok {
		return bad(nil, "has the mode %#o, with which others can use it; \"chmod 600\" helps", mode)
	}
	k.signer, err = gossh.ParsePrivateKey(data)
	var locked *gossh.PassphraseMissingError
	switch {
	case err == nil:
		k.public = k.signer.PublicKey()
	case errors.As(err, &locked):
		k.locked = data
		if k.public = locked.PublicKey; k.public == nil {
			k.public = beside
		}
	case beside != nil: // such as one of a token, which only the agent can use
		k.public = beside
	default:
		return bad(err, "cannot be used as a private key: %s",
			cleanText(strings.TrimPrefix(err.Error(), "ssh: ")))
	}
	return k, nil
}

// readPublicKey returns the key or certificate of a file, or nil.
func readPublicKey(file string) gossh.PublicKey {
	data, err := readRegular(file, maxKeyFile)
	if err != nil {
		return nil
	}
	key, _, _, _, err := gossh.ParseAuthorizedKey(data)
	if err != nil {
		return nil
	}
	return key
}

// readCertificate returns the user certificate of a file, or nil.
func readCertificate(file string) *gossh.Certificate {
	cert, ok := readPublicKey(file).(*gossh.Certificate)
	if !ok || cert.CertType != gossh.UserCert {
		return nil
	}
	return cert
}

// plainKey returns the encoded key of a certificate, or any other key, encoded.
func plainKey(key gossh.PublicKey) []byte {
	// The keys of an agent have another Go type.
	if parsed, err := gossh.ParsePublicKey(key.Marshal()); err == nil {
		if cert, ok := parsed.(*gossh.Certificate); ok {
			return cert.Key.Marshal()
		}
	}
	return key.Marshal()
}

// keySigner signs with one key. RSA keys never sign with SHA-1.
type keySigner struct {
	public gossh.PublicKey
	// sign signs with an algorithm.
	sign signFunc
}

func (s *keySigner) PublicKey() gossh.PublicKey { return s.public }

func (s *keySigner) Algorithms() []string {
	switch format := s.public.Type(); format {
	case gossh.KeyAlgoRSA, gossh.CertAlgoRSAv01:
		return []string{gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256}
	default:
		return []string{strings.Replace(format, "-cert-v01@openssh.com", certSuffix(format), 1)}
	}
}

// certSuffix returns the end of the algorithm's name for a type of certificate. Hardware keys keep
// their vendor suffix.
func certSuffix(format string) string {
	if strings.HasPrefix(format, "sk-") {
		return "@openssh.com"
	}
	return ""
}

func (s *keySigner) Sign(rand io.Reader, data []byte) (*gossh.Signature, error) {
	return s.SignWithAlgorithm(rand, data, s.Algorithms()[0])
}

func (s *keySigner) SignWithAlgorithm(
	rand io.Reader, data []byte, algorithm string,
) (*gossh.Signature, error) {
	return s.sign(rand, data, algorithm)
}

// signWith signs with a signer of the library, with the algorithm where it has a choice.
func signWith(
	s gossh.Signer, rand io.Reader, data []byte, algorithm string,
) (*gossh.Signature, error) {
	if as, ok := s.(gossh.AlgorithmSigner); ok {
		return as.SignWithAlgorithm(rand, data, algorithm)
	}
	return s.Sign(rand, data)
}

// open returns the signer of an encrypted key. It requests the passphrase once per key. pause stops
// the clock of the connection until its result is called. Errors are *keyError.
func (r *route) open(ctx context.Context, k *keyFile, pause func() func()) (gossh.Signer, error) {
	bad := func(err error, reason string) (gossh.Signer, error) {
		return nil, &keyError{file: k.path, reason: reason, err: err}
	}
	defer pause()()
	select {
	case r.prompting <- struct{}{}:
		defer func() { <-r.prompting }()
	case <-ctx.Done():
		return bad(context.Cause(ctx), "is locked: "+context.Cause(ctx).Error())
	}
	digest := sha256.Sum256(k.locked)
	r.mu.Lock()
	signer := r.opened[digest]
	r.mu.Unlock()
	if signer != nil {
		return signer, nil
	}
	if r.passphrase == nil {
		return bad(nil, fmt.Sprintf("is encrypted, and no terminal can prompt for its passphrase; "+
			"add it to ssh-agent with \"ssh-add %s\"", k.path))
	}
	var err error
	for range maxPrompts {
		var pass []byte
		if pass, err = r.passphrase(ctx, k.path); err != nil {
			return bad(err, "is encrypted, and its passphrase was not given: "+cleanText(err.Error()))
		}
		signer, err = gossh.ParsePrivateKeyWithPassphrase(k.locked, pass)
		clear(pass)
		if err != nil {
			continue
		}
		if k.public != nil && !bytes.Equal(plainKey(k.public), signer.PublicKey().Marshal()) {
			return bad(nil, "is not the one of "+k.path+".pub beside it")
		}
		r.mu.Lock()
		r.opened[digest] = signer
		r.mu.Unlock()
		return signer, nil
	}
	reason := fmt.Sprintf("is encrypted, and %d passphrases were wrong", maxPrompts)
	if !errors.Is(err, x509.IncorrectPasswordError) {
		reason += ": " + cleanText(err.Error())
	}
	return bad(err, reason)
}
