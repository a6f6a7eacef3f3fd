package jobs

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds of ConfigMaps, in labelKind. A piece is a further part of another one.
const (
	kindInput  = "input"
	kindFile   = "file"
	kindResult = "result"
	kindPiece  = "piece"
)

const (
	// pieceSize bounds the data of a ConfigMap, which may have 1 MiB.
	pieceSize = 768 << 10
	// pageSize is the number of ConfigMaps in an answer of the server.
	pageSize = 20
	// dataKey is the key of the data.
	dataKey = "data"
)

func inputName(job string, n int) string      { return fmt.Sprintf("%s-input-%d", job, n) }
func fileName(job, name string) string        { return job + "-file-" + name }
func resultName(job string, index int) string { return fmt.Sprintf("%s-result-%d", job, index) }

// blob is data in ConfigMaps.
type blob struct {
	name, kind  string
	meta        metav1.ObjectMeta
	annotations map[string]string
	data        []byte
	// rest makes the names of further pieces unique: a program that has died may have left some.
	rest string
}

func newRest() string { return strings.ToLower(rand.Text()[:8]) }

// put stores a blob. The first ConfigMap has its name, and is created last, so that who finds it
// finds all. The error is that of the server if the name is taken.
func (c *Client) put(ctx context.Context, b blob) error {
	pieces := slices.Collect(slices.Chunk(b.data, pieceSize))
	if len(pieces) == 0 {
		pieces = [][]byte{{}}
	}
	rest := b.name + "-" + b.rest
	for i := len(pieces) - 1; i >= 0; i-- {
		m := &corev1.ConfigMap{
			ObjectMeta: *b.meta.DeepCopy(), Immutable: new(true),
			BinaryData: map[string][]byte{dataKey: pieces[i]},
		}
		m.Name, m.Labels[labelKind] = fmt.Sprintf("%s-%d", rest, i), kindPiece
		if i == 0 {
			m.Name, m.Labels[labelKind] = b.name, b.kind
			m.Annotations = maps.Clone(b.annotations)
			if len(pieces) > 1 {
				if m.Annotations == nil {
					m.Annotations = make(map[string]string)
				}
				m.Annotations[annotationPieces] = fmt.Sprintf("%s/%d", rest, len(pieces))
			}
		}
		err := c.create(ctx, c.core, "configmaps", m)
		if err != nil && (i == 0 || !isTaken(err)) { // an earlier try may have stored it
			return fmt.Errorf("store %s: %w", m.Name, err)
		}
	}
	return nil
}

// get returns the data of a blob.
func (c *Client) get(ctx context.Context, name string) ([]byte, error) {
	first, err := c.configMap(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.whole(ctx, first)
}

func (c *Client) configMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	err := c.do(ctx, c.request(c.core, http.MethodGet, "configmaps").Name(name), m)
	return m, err
}

// whole returns the data of a blob from its first ConfigMap.
func (c *Client) whole(ctx context.Context, first *corev1.ConfigMap) ([]byte, error) {
	data := first.BinaryData[dataKey]
	rest, text, more := strings.Cut(first.Annotations[annotationPieces], "/")
	n, err := strconv.Atoi(text)
	if more && err != nil {
		return nil, fmt.Errorf("%s: its annotation %s is damaged", first.Name, annotationPieces)
	}
	for i := 1; i < n; i++ {
		m, err := c.configMap(ctx, fmt.Sprintf("%s-%d", rest, i))
		if err != nil {
			return nil, err
		}
		data = append(data, m.BinaryData[dataKey]...)
	}
	return data, nil
}

// selector selects the ConfigMaps of a kind.
func selector(job, kind string) string {
	return labelJob + "=" + job + "," + labelKind + "=" + kind
}

// packed are inputs in parts, each a compressed JSON array; bounds are their first inputs.
type packed struct {
	parts  [][]byte
	bounds []int
}

func (p packed) size() (n int) {
	for _, part := range p.parts {
		n += len(part)
	}
	return n
}

// partSize bounds the inputs of a part before their compression, in bytes: it is one ConfigMap,
// and a pod reads little more than its own input.
const partSize = 64 << 10

// packInputs packs inputs.
func packInputs(inputs [][]byte) (packed, error) {
	var p packed
	var part [][]byte
	size := 0
	flush := func() error {
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		data, err := Compress(text)
		p.parts = append(p.parts, data)
		part, size = nil, 0
		return err
	}
	for i, in := range inputs {
		if size > 0 && size+len(in) > partSize {
			if err := flush(); err != nil {
				return p, err
			}
		}
		if size == 0 {
			p.bounds = append(p.bounds, i)
		}
		part = append(part, in)
		size += len(in) + 1
	}
	return p, flush()
}

// unpackInputs is the inverse of packInputs for one part.
func unpackInputs(data []byte) (inputs [][]byte, err error) {
	text, err := Decompress(data)
	if err == nil {
		err = json.Unmarshal(text, &inputs)
	}
	return inputs, err
}

// Compress compresses data, and Decompress is its inverse.
func Compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

// Decompress is the inverse of Compress.
func Decompress(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// isTaken reports whether an object of that name exists.
func isTaken(err error) bool { return apierrors.IsAlreadyExists(err) }

// explain turns the server's error about a missing Job into ErrMissing.
func explain(err error, job string) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the batch %s: %w", job, ErrMissing)
	}
	return err
}
