package agent

// SetNewID replaces the random IDs of sessions and runs.
func (c *Config) SetNewID(fn func() string) { c.newID = fn }
