package leaderfile

import (
	"errors"
	"io/fs"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// CheckResult is the result of --check. The help documents its field names, which must not change.
type CheckResult struct {
	Path    string   `json:"path"`
	Fresh   bool     `json:"fresh"`
	Reason  string   `json:"reason,omitempty"`
	Content *Content `json:"marker,omitempty"`
}

// Check says whether the file at path exists and is fresh at the given time. A missing, empty or stale file is a result with a reason.
// Check returns an error if it cannot read the file, or if the file is not a leader file. All text in the result is printable.
func Check(path string, now time.Time) (CheckResult, error) {
	result := CheckResult{Path: path}
	c, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		result.Reason = "there is no such file"
	case errors.Is(err, errEmpty):
		result.Reason = err.Error()
	case err != nil:
		return result, err
	default:
		result.Reason = c.StaleReason(now)
		result.Fresh = result.Reason == ""
		c = c.printable()
		result.Content = &c
	}
	return result, nil
}

// printable returns c with all text made printable that another program may have written.
func (c Content) printable() Content {
	c.Key, c.Bucket, c.Name, c.Token = terminal.Printable(c.Key), terminal.Printable(c.Bucket), terminal.Printable(c.Name), terminal.Printable(c.Token)
	return c
}
