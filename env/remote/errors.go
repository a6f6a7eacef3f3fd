package remote

import "fmt"

// ConfigError reports an invalid field of a backend's configuration, or a conflict between two.
type ConfigError struct {
	// Backend is the name of the backend.
	Backend string
	// Field is the name of the field, in lower case.
	Field  string
	Reason string
	// Err is the cause; it may be nil. The message is the Reason alone.
	Err error
}

// BadConfig returns a *ConfigError without a cause.
func BadConfig(backend, field, format string, args ...any) error {
	return &ConfigError{Backend: backend, Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (e *ConfigError) Error() string { return e.Backend + ": " + e.Field + ": " + e.Reason }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// OpenError reports an environment that did not start.
type OpenError struct {
	// Backend is the name of the backend.
	Backend string
	// Object names the object that did not start, such as "a container of debian".
	Object string
	Err    error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%s: start %s: %v", e.Backend, e.Object, e.Err)
}

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }
