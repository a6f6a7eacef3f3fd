package docker

import (
	"context"
	"errors"

	"github.com/docker/docker/api/types/image"
)

// openPortable makes the container without a helper.
func (e *Engine) openPortable(context.Context, Config, string, image.InspectResponse) (*Environment, error) {
	return nil, errors.New("portable")
}
