package exchange

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// googleKind returns the kind of an error by the canonical status of Google's servers; false for
// another status.
func googleKind(status string) (llm.ErrorKind, bool) {
	switch status {
	case "RESOURCE_EXHAUSTED":
		return llm.KindRateLimit, true
	case "UNAVAILABLE":
		return llm.KindOverloaded, true
	case "DEADLINE_EXCEEDED":
		return llm.KindTimeout, true
	case "UNAUTHENTICATED", "PERMISSION_DENIED":
		return llm.KindAuth, true
	case "NOT_FOUND":
		return llm.KindNotFound, true
	case "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "ALREADY_EXISTS", "UNIMPLEMENTED":
		return llm.KindInvalid, true
	case "INTERNAL", "UNKNOWN", "ABORTED", "DATA_LOSS", "CANCELLED":
		return llm.KindServer, true
	}
	return "", false
}

// readGoogle reads the fields of an error in Google's form: a canonical status beside the number,
// and details.
func (e *Refusal) readGoogle(fields map[string]json.RawMessage) {
	status := Plain(fields["status"])
	if _, ok := googleKind(status); !ok {
		return
	}
	e.Code = status
	var details []struct {
		Type       string `json:"@type"`
		Reason     string `json:"reason"`
		RetryDelay string `json:"retryDelay"`
		Violations []struct {
			QuotaID string `json:"quotaId"`
		} `json:"violations"`
	}
	if json.Unmarshal(fields["details"], &details) != nil {
		// Details of another form have nothing that the client reads.
		return
	}
	for _, d := range details {
		switch d.Type[strings.LastIndex(d.Type, ".")+1:] {
		case "RetryInfo":
			if delay, err := time.ParseDuration(d.RetryDelay); err == nil {
				e.RetryAfter, e.HasRetryAfter = max(delay, 0), true
			}
		case "ErrorInfo":
			if d.Reason == "API_KEY_INVALID" {
				e.Kind = "invalid_api_key"
			}
		case "QuotaFailure":
			for _, v := range d.Violations {
				// The quota of a minute is soon available again, that of a day is not.
				if strings.Contains(v.QuotaID, "PerDay") {
					e.Kind = "insufficient_quota"
				}
			}
		}
	}
}
