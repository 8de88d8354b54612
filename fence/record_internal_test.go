package fence

import (
	"encoding/json"
	"testing"
	"time"
)

func FuzzEpochRecord(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(`{"token":"0000000000000001-0000000000000007","election":"billing","leader":"a","term":7,"since":"2026-11-21T03:00:00Z"}`))
	f.Add([]byte(`{"token":"0000000000000001-0000000000000000","election":"billing"}`))
	f.Add([]byte(`{"token":7,"election":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := parseRecord(data)
		if err != nil {
			return
		}
		if err := validateToken(rec.Token); err != nil {
			t.Errorf("the record has the token %q: %v", rec.Token, err)
		}
		if rec.Since.Year() < 0 || rec.Since.Year() > 9999 {
			rec.Since = time.Time{}
		}
		written, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord(written)
		if err != nil || again.Token != rec.Token || again.Election != rec.Election || again.Leader != rec.Leader || again.Term != rec.Term {
			t.Errorf("%s was read as %+v, and that as %+v: %v", data, rec, again, err)
		}
	})
}
