package launch

// Program is not needed on this system.
type Program struct{}
