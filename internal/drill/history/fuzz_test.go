package history

import (
	"bytes"
	"testing"
	"time"
)

// FuzzRead reads histories of processes that were killed during a write, and checks the beliefs in them.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"at":1,"what":"started"}` + "\n" + `{"at":2,"what":"believes","term":1,"token":"a","deadline":9}` + "\n"))
	f.Add([]byte(`{"at":-1,"what":"doubts","term":18446744073709551615,"last":-5}` + "\n" + `{"at":`))
	f.Add([]byte("\n\n{}\nnull\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(bytes.NewReader(data), "c", time.Hour)
		if err != nil {
			return
		}
		for _, b := range c.Beliefs {
			if b.To < b.From {
				t.Errorf("a belief from %v to %v", b.From, b.To)
			}
		}
		r := &Run{To: time.Hour, Beliefs: c.Beliefs, Timing: Timing{TTL: 5 * time.Second, Interval: 3 * time.Second}}
		if found := r.Check(); len(found.Overlaps) > 0 {
			t.Errorf("one candidate alone overlaps: %v", found.Overlaps)
		}
	})
}
