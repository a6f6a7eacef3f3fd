package ssh

import "time"

// SetPatience sets how long a look at the environments of the host may take.
func (h *Host) SetPatience(d time.Duration) { h.patience = d }
