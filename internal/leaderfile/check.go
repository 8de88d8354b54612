package leaderfile

import (
	"errors"
	"io/fs"
	"time"

	"github.com/natscampaign/election/internal/terminal"
)

// Freshness is what --check has to say. Its field names are documented in the help and stay as they are.
type Freshness struct {
	Path   string  `json:"path"`
	Fresh  bool    `json:"fresh"`
	Reason string  `json:"reason,omitempty"`
	Marker *Marker `json:"marker,omitempty"`
}

func Check(path string, now time.Time) (Freshness, error) {
	v := Freshness{Path: path}
	m, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Reason = "there is no such file"
	case errors.Is(err, errBlank):
		v.Reason = err.Error()
	case err != nil:
		return v, err
	default:
		v.Reason = m.Doubt(now)
		v.Fresh = v.Reason == ""
		m = m.shown()
		v.Marker = &m
	}
	return v, nil
}

// shown returns m with all that somebody else may have chosen made printable.
func (m Marker) shown() Marker {
	m.Key, m.Bucket, m.Name, m.Token = terminal.Printable(m.Key), terminal.Printable(m.Bucket), terminal.Printable(m.Name), terminal.Printable(m.Token)
	return m
}
