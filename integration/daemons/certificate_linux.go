package daemons

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writeCertificates writes into dir an authority (ca.pem), a server's certificate for 127.0.0.1
// (server-cert.pem, server-key.pem) and a client's (cert.pem, key.pem), valid for a day.
func writeCertificates(dir string) error {
	authority, key, err := writeAuthority(dir)
	if err != nil {
		return err
	}
	server := certificate(2, "sandboxagent test dockerd")
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if err := writePair(dir, "server-", server, authority, key); err != nil {
		return err
	}
	client := certificate(3, "sandboxagent test client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return writePair(dir, "", client, authority, key)
}

// writeAuthority makes dir and an authority in it, ca.pem.
func writeAuthority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	authority := certificate(1, "sandboxagent test authority")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true,
		x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	return authority, key, writePEM(filepath.Join(dir, "ca.pem"), "CERTIFICATE", der)
}

func certificate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		KeyUsage:  x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// writePair writes a new key and the certificate that the authority signs for it.
func writePair(
	dir, prefix string, cert, authority *x509.Certificate, authorityKey *ecdsa.PrivateKey,
) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, authority, key.Public(), authorityKey)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", cert.Subject.CommonName, err)
	}
	if err := writePEM(filepath.Join(dir, prefix+"cert.pem"), "CERTIFICATE", der); err != nil {
		return err
	}
	der, err = x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, prefix+"key.pem"), "EC PRIVATE KEY", der)
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
