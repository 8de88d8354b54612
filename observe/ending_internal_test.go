package observe

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestAnEventGivesAReasonOnlyIfWhatIsStoredProvesIt(t *testing.T) {
	const (
		now   = `"2026-01-01T00:00:00Z"`
		older = `"2025-01-01T00:00:00Z"`
		held  = `{"name":"a","instance":"a1","attempt":"a1.1","since":` + now + `,"bucket":` + now + `,"term":7}`
	)
	won := func(over, bucket string) string {
		return `{"name":"b","instance":"b1","attempt":"b1.1","since":` + now + `,"bucket":` + bucket + `,"won":"` + over + `"}`
	}
	released := func(reason string) string {
		return `{"name":"a","instance":"a1","attempt":"a1.2","since":` + now + `,"released":` + now + reason + `}`
	}
	for name, c := range map[string]struct {
		held  string // what was stored; a record by default
		after time.Duration
		next  update
		want  Event
	}{
		"a release says why":                  {next: update{value: released(`,"reason":"resigned"`)}, want: Event{Kind: Released, Reason: election.ReasonResigned}},
		"a release of an older version":       {next: update{value: released("")}, want: Event{Kind: Released}},
		"the winner took over a release":      {next: update{value: won("released", now)}, want: Event{Kind: Released}},
		"an eviction names the operator":      {next: update{operation: jetstream.KeyValueDelete, value: `{"evicted_by":"alice@ops-1"}`}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted, By: "alice@ops-1"}},
		"a deletion names nobody":             {next: update{operation: jetstream.KeyValueDelete}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted}},
		"a deletion with another value":       {next: update{operation: jetstream.KeyValueDelete, value: "alice"}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted}},
		"a purge before the expiry":           {next: update{operation: jetstream.KeyValuePurge}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted}},
		"an expiry says nothing":              {after: time.Minute, next: update{operation: jetstream.KeyValuePurge}, want: Event{Kind: Expired}},
		"a winner after an expiry":            {after: time.Minute, next: update{value: won("vacant", now)}, want: Event{Kind: Expired}},
		"the winner timed the lease":          {after: 40 * time.Second, next: update{value: won("lapsed", now)}, want: Event{Kind: Expired, Reason: election.ReasonLapsed}},
		"a lease that cannot have lapsed":     {next: update{value: won("lapsed", now)}, want: Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: "b"}},
		"the winner found no record":          {next: update{value: won("vacant", now)}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted}},
		"another record":                      {next: update{value: won("", now)}, want: Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: "b"}},
		"a bare name":                         {next: update{value: "b"}, want: Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: "b"}},
		"a release by another candidate":      {next: update{value: `{"name":"b","instance":"b1","attempt":"b1.2","released":` + now + `,"reason":"resigned"}`}, want: Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: "b"}},
		"a later bucket":                      {next: update{revision: 1, value: won("vacant", `"2026-01-02T00:00:00Z"`)}, want: Event{Kind: Evicted, Reason: election.ReasonBucketReplaced}},
		"an earlier revision":                 {next: update{revision: 1, value: won("vacant", now)}, want: Event{Kind: Evicted, Reason: election.ReasonRewound}},
		"a marker of an earlier revision":     {next: update{revision: 1, operation: jetstream.KeyValueDelete}, want: Event{Kind: Evicted}},
		"a late write of an earlier term":     {next: update{value: `{"name":"a","instance":"a1","attempt":"a1.9","since":` + older + `,"won":"reclaimed"}`}, want: Event{Kind: Evicted}},
		"a bare name is deleted, as released": {held: "a", next: update{operation: jetstream.KeyValueDelete}, want: Event{Kind: Released}},
		"a bare name is evicted":              {held: "a", next: update{operation: jetstream.KeyValueDelete, value: `{"evicted_by":"alice"}`}, want: Event{Kind: Evicted, Reason: election.ReasonDeleted, By: "alice"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, o, began := NewWithT(t), begun(), time.Now()
			if c.held == "" {
				c.held = held
			}
			o.update(update{key: "k", value: c.held, revision: 10, created: began})
			for _, waits := o.queue.next(); waits; _, waits = o.queue.next() {
				continue
			}
			c.next.key, c.next.created = "k", began.Add(c.after+time.Second)
			if c.next.revision == 0 {
				c.next.revision = 11
			}
			o.update(c.next)
			e, _ := o.queue.next()
			g.Expect(Event{Kind: e.Kind, Reason: e.Reason, By: e.By}).To(Equal(c.want))
			g.Expect(e.Leader.Name).To(Equal("a"))
		})
	}
}

func TestAWinSaysOverWhat(t *testing.T) {
	g, o := NewWithT(t), begun()
	o.update(update{key: "k", value: `{"name":"a","instance":"a1","attempt":"a1.1","won":"released"}`, revision: 1, created: time.Now()})
	e, _ := o.queue.next()
	g.Expect([]any{e.Kind, e.Reason}).To(Equal([]any{Elected, election.ReasonReleased}))
}
