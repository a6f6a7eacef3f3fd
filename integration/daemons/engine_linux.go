package daemons

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// unixClient speaks HTTP to the socket. The few calls made here need no version of the API.
func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// call sends a request and returns the body of the answer, which the caller closes.
func call(
	ctx context.Context, client *http.Client, method, path string, query url.Values, body io.Reader,
) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close() //nolint:errcheck // nothing was written
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	return resp.Body, nil
}

// stream sends a request and reads the messages of the answer to their end; one of them may be an
// error.
func stream(
	ctx context.Context, client *http.Client, path string, query url.Values, body io.Reader,
) error {
	answer, err := call(ctx, client, http.MethodPost, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Close() //nolint:errcheck // nothing was written
	var log bytes.Buffer
	for dec := json.NewDecoder(answer); ; {
		var message struct{ Stream, Error string }
		if err := dec.Decode(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("POST %s: %w", path, err)
		}
		log.WriteString(message.Stream)
		if message.Error != "" {
			return fmt.Errorf("POST %s: %s\n%s", path, message.Error, log.Bytes()[max(0, log.Len()-4096):])
		}
	}
}

func ping(ctx context.Context, client *http.Client) error {
	answer, err := call(ctx, client, http.MethodGet, "/_ping", nil, nil)
	if err != nil {
		return err
	}
	return answer.Close()
}

// removeContainers removes every container, as far as the daemon can.
func removeContainers(ctx context.Context, client *http.Client) {
	answer, err := call(ctx, client, http.MethodGet, "/containers/json", url.Values{"all": {"1"}}, nil)
	if err != nil {
		return
	}
	defer answer.Close() //nolint:errcheck // nothing was written
	var list []struct{ ID string }
	if json.NewDecoder(answer).Decode(&list) != nil {
		return
	}
	for _, c := range list {
		if answer, err := call(ctx, client, http.MethodDelete, "/containers/"+c.ID,
			url.Values{"force": {"1"}, "v": {"1"}}, nil); err == nil {
			_ = answer.Close()
		}
	}
}
