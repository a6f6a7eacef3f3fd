package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// errIdle is the cause that ends an exchange without data for the idle timeout.
var errIdle = errors.New("no data came for too long")

// Exchange is one request and its answer. It is the HTTP client of a provider's library for that
// request, so that it sees status, headers and body, which the library's errors do not carry. It is
// not safe for concurrent use.
type Exchange struct {
	// Patches are merged into the request body, in order, as RFC 7396 defines.
	Patches []json.RawMessage

	endpoint *Endpoint
	// cause returns the reason why the context of the exchange ended, and whether the caller ended it.
	cause  func() (err error, byCaller bool)
	cancel context.CancelCauseFunc
	idle   *time.Timer
	status int
	body   io.ReadCloser
	read   int64
}

// Decoder makes deltas of the events of one answer.
type Decoder interface {
	// Event returns the deltas of an event by its data. DeltaDone completes the answer. An error, such
	// as a *Refusal or llm.ErrAnswerTooLarge, ends it after the deltas.
	Event(data []byte) ([]llm.Delta, error)
	// End returns DeltaDone if the answer is complete although no event has completed it, else false.
	// The stream ended regularly if whole, else it broke off.
	End(whole bool) (llm.Delta, bool)
}

// Stream returns the answer to the request that send sends, with numbered deltas. Each iteration
// sends once.
func (e *Endpoint) Stream(
	ctx context.Context, send func(context.Context, *Exchange) (Decoder, error),
) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		x, ctx := e.newExchange(ctx)
		defer x.end()
		dec, err := send(ctx, x)
		if err != nil {
			yield(llm.Delta{}, x.sendError(err))
			return
		}
		stopped := false
		err = x.decode(dec, func(d llm.Delta) bool {
			stopped = !yield(d, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(llm.Delta{}, err)
		}
	}
}

// decode emits the answer until it is complete, fails, or emit returns false.
func (x *Exchange) decode(dec Decoder, emit func(llm.Delta) bool) error {
	events := newEventReader(x)
	var m meter
	for {
		data, readErr := events.next()
		if string(data) == "[DONE]" {
			// Chat Completions ends its streams with it.
			data, readErr = nil, io.EOF
		}
		if len(data) > 0 {
			if hasMoreValues(data, maxValues) {
				return x.tooLarge(fmt.Sprintf("an event has more than %d values", maxValues),
					llm.ErrAnswerTooLarge)
			}
			deltas, err := dec.Event(data)
			for _, d := range deltas {
				if text, err := m.add(d); err != nil {
					return x.tooLarge(text, err)
				}
				if !emit(d) {
					return nil
				}
				if d.Kind == llm.DeltaDone {
					x.drain()
					return nil
				}
			}
			if err != nil {
				return x.eventError(err)
			}
		}
		if readErr != nil {
			done, complete := dec.End(errors.Is(readErr, io.EOF))
			if !complete || x.interrupted() {
				return x.readError(readErr)
			}
			emit(done)
			x.drain()
			return nil
		}
	}
}

// newExchange returns an exchange, which the caller ends, and its context.
func (e *Endpoint) newExchange(parent context.Context) (*Exchange, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	x := &Exchange{endpoint: e, cancel: cancel}
	x.cause = func() (error, bool) {
		if parent.Err() != nil {
			return context.Cause(parent), true
		}
		return context.Cause(ctx), false
	}
	x.idle = time.AfterFunc(e.IdleTimeout, func() { cancel(errIdle) })
	x.idle.Stop()
	return x, ctx
}

func (x *Exchange) end() {
	x.idle.Stop()
	if x.body != nil {
		_ = x.body.Close()
	}
	x.cancel(nil)
}

// interrupted reports whether the caller's context has ended.
func (x *Exchange) interrupted() bool {
	_, byCaller := x.cause()
	return byCaller
}

// Do sends the request of a library with the headers and patches of the exchange. An answer that is
// not a stream of events is an *llm.Error.
func (x *Exchange) Do(req *http.Request) (*http.Response, error) {
	if err := x.prepare(req); err != nil {
		return nil, x.endpoint.newError(llm.KindInvalid, "", err)
	}
	x.idle.Reset(x.endpoint.IdleTimeout)
	resp, err := x.endpoint.HTTPClient.Do(req)
	x.idle.Stop()
	if err != nil {
		return nil, err
	}
	x.status = resp.StatusCode
	x.body = resp.Body
	if err := x.refusal(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// Post sends body as JSON, for a client without a library.
func (x *Exchange) Post(ctx context.Context, address string, header http.Header, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	_, err = x.Do(req) //nolint:bodyclose // end closes the body.
	return err
}

// prepare adds the headers and patches to a request.
func (x *Exchange) prepare(req *http.Request) error {
	for name, values := range x.endpoint.headers {
		req.Header[name] = values
	}
	if len(x.Patches) == 0 || req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	if body, err = mergePatches(body, x.Patches...); err != nil {
		return err
	}
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, err = req.GetBody()
	return err
}

// refusal returns the error in resp, or nil if resp is a stream of events.
func (x *Exchange) refusal(resp *http.Response) error {
	contentType := resp.Header.Get("Content-Type")
	stream := !strings.Contains(contentType, "json") && !strings.Contains(contentType, "html")
	ok := resp.StatusCode >= 200 && resp.StatusCode <= 299
	if ok && stream {
		return nil
	}
	if target, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		return x.redirected(resp.StatusCode, target)
	}
	// A read error leaves part of the text, which is enough, unless the caller cancelled.
	body, _ := io.ReadAll(io.LimitReader(x, maxErrorBody))
	if x.interrupted() {
		return x.canceled()
	}
	info := parseRefusal(body, contentType)
	var e *llm.Error
	switch {
	case !ok:
		e = x.endpoint.newError(kindOf(resp.StatusCode, info), info.Message, nil)
		if e.Message == "" {
			e.Message = strings.ToLower(http.StatusText(resp.StatusCode))
		}
	case strings.Contains(contentType, "html"):
		e = x.endpoint.newError(llm.KindNotFound, "the address answers with a web page, not as a "+
			"model; is the base URL right?", nil)
	case info.Found:
		e = x.endpoint.newError(kindOf(resp.StatusCode, info), info.Message, nil)
	default:
		e = x.endpoint.newError(llm.KindStream, "the answer is not a stream of events", nil)
	}
	e.Status, e.Code = resp.StatusCode, clean(x.endpoint.redact(info.Code))
	if !ok {
		e.RetryAfter, e.HasRetryAfter = retryAfter(resp.Header)
	}
	if !e.HasRetryAfter {
		e.RetryAfter, e.HasRetryAfter = info.RetryAfter, info.HasRetryAfter
	}
	return e
}

// redirected returns the error for a redirect, which names its target without what may be a secret.
func (x *Exchange) redirected(status int, target *url.URL) error {
	shown := url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}
	e := x.endpoint.newError(llm.KindNotFound, "the server redirects to "+shown.String()+", but the "+
		"key and the prompt go to the base URL only", nil)
	e.Status = status
	return e
}

// Read reads from the body of the answer, within the limits of size and silence. Its errors are
// io.EOF and *llm.Error.
func (x *Exchange) Read(p []byte) (int, error) {
	x.idle.Reset(x.endpoint.IdleTimeout)
	n, err := x.body.Read(p)
	x.idle.Stop()
	x.read += int64(n)
	switch {
	case x.read > llm.MaxAnswer:
		return n, x.tooLarge(fmt.Sprintf("the answer is longer than %d MiB", llm.MaxAnswer>>20),
			llm.ErrAnswerTooLarge)
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	}
	return n, x.readError(err)
}

// drain reads the rest after a complete answer, so that the connection can be reused. It does not
// wait for a server that keeps the answer open.
func (x *Exchange) drain() {
	if x.body == nil {
		return
	}
	x.idle.Reset(100 * time.Millisecond)
	_, _ = io.CopyN(io.Discard, x.body, 64<<10)
	x.idle.Stop()
}

func (x *Exchange) canceled() *llm.Error {
	cause, _ := x.cause()
	e := x.endpoint.newError(llm.KindCanceled, "", cause)
	e.Status = x.status
	return e
}

// interruption returns the error of an exchange that the caller or the idle timeout ended, else
// nil.
func (x *Exchange) interruption() *llm.Error {
	cause, byCaller := x.cause()
	switch {
	case byCaller:
		return x.canceled()
	case errors.Is(cause, errIdle):
		text := fmt.Sprintf("no data came for %s", x.endpoint.IdleTimeout)
		e := x.endpoint.newError(llm.KindTimeout, text, cause)
		e.Status = x.status
		return e
	}
	return nil
}

// sendError returns the error of a request without a stream.
func (x *Exchange) sendError(err error) error {
	if e := x.interruption(); e != nil {
		return e
	}
	var known *llm.Error
	if errors.As(err, &known) {
		return known
	}
	var timeout net.Error
	if errors.As(err, &timeout) {
		if timeout.Timeout() {
			return x.endpoint.newError(llm.KindTimeout, "", err)
		}
		return x.endpoint.newError(llm.KindNetwork, "", err)
	}
	// The remaining errors are of requests that cannot be encoded.
	return x.endpoint.newError(llm.KindInvalid, "", err)
}

// readError returns the error of a stream whose reading failed with err; io.EOF means that it ended
// too early.
func (x *Exchange) readError(err error) error {
	if e := x.interruption(); e != nil {
		return e
	}
	var known *llm.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, io.EOF) {
		return x.streamError("the answer ended before it was complete", io.ErrUnexpectedEOF)
	}
	return x.streamError("the answer broke off: "+err.Error(), err)
}

// eventError returns the error for an event that reports one or is not understood.
func (x *Exchange) eventError(err error) error {
	var info *Refusal
	if errors.As(err, &info) {
		e := x.endpoint.newError(kindOf(x.status, *info), info.Message, nil)
		e.Status, e.Code = x.status, clean(x.endpoint.redact(info.Code))
		e.RetryAfter, e.HasRetryAfter = info.RetryAfter, info.HasRetryAfter
		return e
	}
	if errors.Is(err, llm.ErrAnswerTooLarge) {
		return x.tooLarge(err.Error(), llm.ErrAnswerTooLarge)
	}
	return x.streamError(err.Error(), err)
}

func (x *Exchange) streamError(message string, err error) *llm.Error {
	e := x.endpoint.newError(llm.KindStream, message, err)
	e.Status = x.status
	return e
}

// tooLarge returns the error of an answer beyond the bound that message names.
func (x *Exchange) tooLarge(message string, bound error) *llm.Error {
	e := x.endpoint.newError(llm.KindAnswerTooLarge, message, bound)
	e.Status = x.status
	return e
}

// newError returns an error whose text holds no secret.
func (e *Endpoint) newError(kind llm.ErrorKind, message string, err error) *llm.Error {
	if message == "" && err != nil {
		message = err.Error()
	}
	return &llm.Error{Kind: kind, Provider: e.Provider, Message: clean(e.redact(message)), Err: err}
}
