package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// ErrorWithoutText is the message of an error whose server gives none.
const ErrorWithoutText = "the server reports an error without a text"

// UnsendablePart returns the error for a part that a message of role cannot hold.
func UnsendablePart(p llm.Part, role llm.Role) error {
	return fmt.Errorf("a part of kind %q cannot be sent in a message of role %q", p.Kind, role)
}

// UnknownRole returns the error for a message of another role than those of package llm.
func UnknownRole(role llm.Role) error { return fmt.Errorf("the role %q is unknown", role) }

// EventType returns the type of an event. An event of type "error", and a refusal without a type,
// is a *Refusal.
func EventType(data []byte) (string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", fmt.Errorf("an event is not valid JSON: %w", err)
	}
	if head.Type != "" && head.Type != "error" {
		return head.Type, nil
	}
	info := RefusalOf(data)
	if head.Type == "" && !info.Found {
		return "", errors.New("an event has no type")
	}
	if info.Kind == "error" {
		info.Kind = ""
	}
	if info.Message == "" && head.Type != "" {
		info.Message = ErrorWithoutText
	}
	return "", &info
}

// ToolName returns the name that a server accepts for a tool name that a model made up: servers
// refuse other characters together with the whole conversation.
func ToolName(name string) string {
	name = Word(name)
	if name == "" {
		return "_"
	}
	return name[:min(len(name), 64)]
}

// Word replaces the characters of s that are not letters, digits, underscores or hyphens.
func Word(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
}
