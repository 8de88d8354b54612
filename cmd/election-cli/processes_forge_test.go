package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"
)

// TestForgedChangesLookLikeThoseOfTheServer compares them with what a server republishes.
func TestForgedChangesLookLikeThoseOfTheServer(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	prefix := strings.TrimSuffix(configOf(t, a.s, defaultBucket).RePublish.Destination, ">")
	heard, err := a.s.nc.SubscribeSync(prefix + ">")
	a.Expect(err).NotTo(HaveOccurred())
	next := func() *nats.Msg {
		m, err := heard.NextMsg(patience)
		a.Expect(err).NotTo(HaveOccurred())
		return m
	}
	a.put("jobs", leading("x", nil))
	first := next()
	old, err := a.bucket.Get(t.Context(), "jobs")
	a.Expect(err).NotTo(HaveOccurred())
	a.put("jobs", leading("x", fields{"term": 8}))
	second := next()
	live, err := a.bucket.Get(t.Context(), "jobs")
	a.Expect(err).NotTo(HaveOccurred())

	f := &forger{subject: prefix + "jobs", live: live, names: []string{"x", "y"}}
	for range forgeries { // there is nothing to replay yet
		if m := f.next(); m != nil {
			at, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerTimeStamp))
			a.Expect(err).NotTo(HaveOccurred())
			a.Expect(at).To(BeTemporally("~", time.Now(), patience))
		}
	}
	f.before = append(f.before, old)
	seen := map[string]int{}
	for range 2 * len(forgeries) {
		m := f.next()
		a.Expect(m.Subject).To(Equal(second.Subject))
		for _, header := range slices.Collect(maps.Keys(second.Header)) {
			a.Expect(m.Header).To(HaveKey(header))
		}
		for _, header := range []string{headerStream, headerSubject} {
			a.Expect(m.Header.Get(header)).To(Equal(second.Header.Get(header)))
		}
		var record fields
		switch _ = json.Unmarshal(m.Data, &record); {
		case len(m.Data) == 0:
			seen["removal "+m.Header.Get(headerMarker)+m.Header.Get(headerOperation)]++
			a.Expect(m.Header.Get(headerSequence)).To(Equal("3"))
		case string(m.Data) == string(first.Data):
			seen["replay"]++
			a.Expect(m.Header).To(Equal(first.Header))
		case record["bucket"] != nil:
			seen["later bucket"]++
		case record["released"] != nil:
			seen["release"]++
			a.Expect(m.Header.Get(headerSequence)).To(Equal("2"))
			a.Expect(record).To(HaveKeyWithValue("attempt", "i-x.1"), "of whoever leads")
		case record["name"] == userStranger:
			seen["invented"]++
			a.Expect(record["attempt"]).NotTo(Equal("i-x.1"))
		}
	}
	a.Expect(seen).To(Equal(map[string]int{
		"release": 4, "later bucket": 4, "invented": 4, "replay": 2,
		"removal MaxAge": 2, "removal Remove": 2, "removal Purge": 2, "removal DEL": 2, "removal PURGE": 2,
	}))
}

// TestForgedChangesChangeNothing has somebody publish them who may do nothing else.
func TestForgedChangesChangeNothing(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--for", "20s", "--ttl", "2s", "--fault", "forge")
	g := NewWithT(t)
	g.Expect(r.Changes).To(BeEmpty())
	g.Expect(r.OverlapMS).To(BeZero())
	g.Expect(r.Terms).To(Equal(1))
	g.Expect(r.Faults).To(ContainElement(And(HaveField("Kind", "forge"), HaveField("Count", BeNumerically(">=", 3)))))
}
