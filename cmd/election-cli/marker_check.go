package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// freshness is what --check has to say. Its field names are documented in the help and stay as they are.
type freshness struct {
	Path   string  `json:"path"`
	Fresh  bool    `json:"fresh"`
	Reason string  `json:"reason,omitempty"`
	Marker *marker `json:"marker,omitempty"`
}

// check judges the marker at path by this host's clock.
func (c *fileCommand) check(path string) error {
	v, err := assess(path, time.Now())
	if err != nil {
		return fmt.Errorf("--check %s: %w", path, err)
	}
	if c.json {
		if err := writeJSON(c.stdout, v); err != nil {
			return err
		}
	}
	if v.Fresh {
		return nil
	}
	return &verdict{exitNegative, fmt.Sprintf("%s does not count: %s", path, v.Reason)}
}

func assess(path string, now time.Time) (freshness, error) {
	v := freshness{Path: path}
	m, err := readMarker(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Reason = "there is no such file"
	case errors.Is(err, errBlank):
		v.Reason = err.Error()
	case err != nil:
		return v, err
	default:
		v.Reason = m.doubt(now)
		v.Fresh = v.Reason == ""
		m = m.shown()
		v.Marker = &m
	}
	return v, nil
}

// shown returns m with all that somebody else may have chosen made printable.
func (m marker) shown() marker {
	m.Key, m.Bucket, m.Name, m.Token = printable(m.Key), printable(m.Bucket), printable(m.Name), printable(m.Token)
	return m
}
