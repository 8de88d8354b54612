package observe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/observe"
)

// ended returns how elections ended, in words.
func ended(f *fleet, o *observe.Observer, keys ...string) (all []string) {
	f.Helper()
	events, err := o.Ended(context.Background(), keys...)
	f.Expect(err).NotTo(HaveOccurred())
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s %q term>0:%v %s", e.Key, e.Kind, e.Leader.Name, e.Leader.Term > 0, e.Reason))
	}
	return all
}

func TestHowAnElectionEndedIsKnownForAsLongAsTheReleaseLasts(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, err := observe.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(ended(f, o)).To(BeEmpty())
		f.Expect(ended(f, o, key)).To(BeEmpty())
		a := f.Connected("a").Begin()
		after(interval)
		f.Expect(ended(f, o, key)).To(BeEmpty(), "it is led")
		_ = a.Shutdown(context.Background())
		stopped := time.Now()
		after(24 * time.Hour)
		for _, keys := range [][]string{nil, {key}, {"*"}, {"other", key}} {
			f.Expect(ended(f, o, keys...)).To(Equal([]string{key + ` released "a" term>0:true stopped`}))
		}
		events, err := o.Ended(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(events[0].At).To(BeTemporally("~", stopped, time.Second))
		f.Expect(ended(f, o, "other.*")).To(BeEmpty())
	}, fleettest.Republished)
}

func TestHowAnElectionEndedIsKnownByEachHandle(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		bare, err := observe.New(f.Bare(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		a := f.Connected("a").Begin()
		after(interval)
		_ = a.Shutdown(context.Background())
		f.Expect(ended(f, bare)).To(HaveLen(1))
		f.Expect(ended(f, bare, key)).To(HaveLen(1))
	}, fleettest.Republished)
}

func TestEvictionSaysWhoWasEvictedAndByWhom(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		bucket := f.Open(f.Server.Connect(f.T))
		o, err := observe.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		operator, err := admin.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.Connected("a").Begin()
		after(interval)
		a.Pause()
		leader, err := operator.Evict(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		events, err := o.Ended(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(events).To(HaveLen(1))
		f.Expect(events[0].Kind).To(Equal(observe.Evicted))
		f.Expect(events[0].Reason).To(Equal(election.ReasonDeleted))
		f.Expect(events[0].By).NotTo(BeEmpty())
		f.Expect(events[0].Leader.Name).To(Equal("a"))
		f.Expect(events[0].Leader.Term).To(Equal(leader.Term))
	}, fleettest.Republished)
}

func TestKeyThatWasDeletedOrExpiredSaysNoMoreThanWhen(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, err := observe.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		f.Write("plain")
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		f.Expect(ended(f, o, key)).To(Equal([]string{key + ` evicted "" term>0:false deleted`}))
		f.Expect(ended(f, o)).To(BeEmpty(), "it may be other data")
		f.Write("plain")
		after(fleettest.TTL + 500*time.Millisecond)
		f.Expect(ended(f, o, key)).To(Equal([]string{key + ` expired "" term>0:false `}))
	}, fleettest.Republished)
}

func TestKeyThatCannotBeIsNamed(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, err := observe.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		for _, wrong := range []string{"a b", "", "a.>.b"} {
			_, err = o.Ended(context.Background(), wrong)
			f.Expect(err).To(MatchError(election.ErrInvalidOption))
		}
	}, fleettest.Republished)
}
