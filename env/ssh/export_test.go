package ssh

import "time"

// SetScriptTimeout sets the time limit of List, Collect and Attach.
func (h *Host) SetScriptTimeout(d time.Duration) { h.scriptTimeout = d }
