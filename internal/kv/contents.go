package kv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// MaxTogether is how many requests about the keys of a bucket are made at a time.
const MaxTogether = 16

// Contents is what a bucket stores, as far as a change of the bucket concerns it.
type Contents struct {
	Holders      []Holder      // the candidates whose leases may last still, by key
	LongestLease time.Duration // the longest that a stored record states; 0 if none states one
	Foreign      []string      // the keys of values that no candidate and no group writes, and the subjects that are no keys
	Plain        []string      // the keys of bare names, or of other short text: nothing tells the two apart
	Records      int           // how many values are those of candidates or groups
}

// Holder is a candidate that holds a key.
type Holder struct {
	Key, Name string
	Lease     time.Duration // that the record states; 0 if it states none
}

// Contents reads the values of all keys.
func (b *Bucket) Contents(ctx context.Context, info Info) (c Contents, err error) {
	subjects, err := b.storedSubjects(ctx, ">")
	if err != nil {
		return c, err
	}
	var keys []string
	for _, subject := range subjects {
		if key, ok := strings.CutPrefix(subject, b.Subject("")); ok {
			keys = append(keys, key)
		} else {
			c.Foreign = append(c.Foreign, subject)
		}
	}
	states, errs := make([]record.State, len(keys)), make([]error, len(keys))
	Together(len(keys), MaxTogether, func(i int) {
		errs[i] = UntilRefused(ctx, b.Conn(), b.ToRead(keys[i]), func(ctx context.Context) (err error) {
			states[i], err = b.Read(ctx, keys[i])
			return err
		})
	})
	for i, key := range keys {
		if errs[i] != nil {
			return c, errs[i]
		}
		c.add(info, key, states[i])
	}
	return c, nil
}

// add takes note of what is stored under a key.
func (c *Contents) add(info Info, key string, s record.State) {
	r := s.Record
	switch other := IsOtherData(key, r.Instance, r.Name, r.Interval()); {
	case s.Removal != record.Kept:
		return
	case other && (r.Instance != "" || isGroupKey(key)):
		c.Records++
		return
	case other, r.Instance == "" && !isName(r.Name):
		c.Foreign = append(c.Foreign, key)
		return
	case r.Instance == "":
		c.Plain = append(c.Plain, key)
	default:
		c.Records++
	}
	c.LongestLease = max(c.LongestLease, r.Lease())
	if s.Held() && info.Stream.TimeStamp.Sub(s.Written) < info.mostLeft(r.Lease()) {
		c.Holders = append(c.Holders, Holder{key, r.Name, r.Lease()})
	}
}

// isGroupKey reports whether a group stores its plan, an announcement or a list under the key.
func isGroupKey(key string) bool {
	return strings.HasSuffix(key, ".plan") || strings.HasSuffix(key, ".planner") || strings.Contains(key, ".lists.")
}

// isName reports whether the text can be the bare name of a candidate. A longer text was cut when it was read.
func isName(text string) bool {
	return validate.Name(text) == nil && len(text) <= validate.MaxNameBytes-utf8.UTFMax && !strings.ContainsAny(text[:1], "{[")
}

// mostLeft returns how long after a write the lease may last that the write earned. The leases of a bucket whose TTL no candidate goes by are those
// of an earlier TTL.
func (i Info) mostLeft(lease time.Duration) time.Duration {
	switch {
	case i.HasTTL():
		return i.TTL + timing.ExpiryLateness
	case lease > 0:
		return timing.LapseTime(lease, 0, false) + timing.ExpiryLateness
	}
	return timing.MaxTTL
}

// HasTTL reports whether the bucket has a TTL that candidates go by.
func (i Info) HasTTL() bool { return i.TTL >= timing.MinTTL && i.TTL <= timing.MaxTTL }

// neededTTL returns the shortest TTL that a bucket may be given while the holder leads: no key expires before its holder has stood down then. noted is
// the longest TTL of which the bucket says that it has had it, or 0.
func (h Holder) neededTTL(noted time.Duration) time.Duration {
	switch needed := timing.TTLOf(h.Lease); {
	case h.Lease <= 0 && noted > 0:
		return noted
	case h.Lease <= 0:
		return timing.MaxTTL
	case noted >= h.Lease: // the margin may be shorter than by default
		return min(needed, noted)
	default:
		return needed
	}
}

// SuitableTTL returns the TTL of a bucket, if candidates go by it, or that of its sessions. Else it returns the one that the bucket has had, or as its records tell, or the default.
func (b *Bucket) SuitableTTL(ctx context.Context, info Info) (time.Duration, error) {
	if info.HasTTL() || info.SessionTTL > 0 {
		return info.LeaseTTL(), nil
	}
	if noted := notedTTL(&info.Stream.Config); noted > 0 {
		return noted, nil
	}
	c, err := b.Contents(ctx, info)
	if err != nil || c.LongestLease <= 0 {
		return timing.DefaultTTL, err
	}
	return min(max(timing.TTLOf(c.LongestLease), timing.MinTTL), timing.MaxTTL), nil
}

// Doubt says why a bucket may not be one for elections, in words that follow "the bucket"; "" if it is one.
func (b *Bucket) Doubt(ctx context.Context, info Info) (string, error) {
	if info.HasTTL() || info.SessionTTL > 0 {
		return "", nil
	}
	c, err := b.Contents(ctx, info)
	switch others := append(c.Foreign, c.Plain...); {
	case err != nil:
		return "", err
	case len(others) > 0:
		return fmt.Sprintf("has no TTL between 1s and 1h, and stores what is no election's (%s)", someKeys(others)), nil
	case c.Records == 0 && !info.Pinned:
		return "has no TTL between 1s and 1h, and nothing in it shows that it is for elections", nil
	}
	return "", nil
}

// Together calls f with each number below n, up to most calls at a time, and returns after the last.
func Together(n, most int, f func(i int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range min(n, most) {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// storedSubjects returns the subjects of a pattern under which something is stored, in order.
func (b *Bucket) storedSubjects(ctx context.Context, pattern string) ([]string, error) {
	stream, err := b.backing(ctx)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(pattern))
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(info.State.Subjects)), nil
}
