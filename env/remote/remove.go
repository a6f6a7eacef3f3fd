package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// removeTime bounds the time that a helper has to end its commands before it is removed, and then
// the time that its client has to notice that.
const removeTime = 10 * time.Second

// Remove is for Config.Close of backends that remove the place of the helper, such as a container:
// closeHelper ends the helper with its commands, and remove removes the rest after that, or after
// 10 seconds. Once remove succeeds, an error of closeHelper does not matter; if it fails, the
// result has both errors. Backend is the prefix.
func Remove(backend string, closeHelper, remove func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- closeHelper() }()
	var cerr error
	select {
	case cerr = <-closed:
		closed = nil
	case <-time.After(removeTime):
	}
	err := remove()
	if closed != nil {
		select {
		case cerr = <-closed:
		case <-time.After(removeTime):
			cerr = errors.New("the helper does not answer")
		}
	}
	if err == nil || cerr == nil || errors.Is(cerr, env.ErrGone) {
		return err
	}
	return errors.Join(fmt.Errorf("%s: %w", backend, cerr), err)
}
