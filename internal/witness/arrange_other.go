//go:build !linux && !darwin

package witness

// Start returns [ErrUnsupported].
func Start(Config) (*Teller, error) { return nil, ErrUnsupported }
