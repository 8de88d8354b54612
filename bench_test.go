package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// runningLeader returns a leader with a lease of an hour, on the wall clock. If hang is set, its renewals hang from now on.
func runningLeader(b testing.TB, hang bool) *election.Election {
	b.Helper()
	s := natstest.Start(b)
	bucket := &Faulty{KeyValue: s.Bucket(b, s.Connect(b), time.Hour)}
	interval := 40 * time.Minute
	if hang {
		interval = 20 * time.Millisecond
	}
	e, err := election.NewElection("a", Key, bucket, election.WithSplay(0), election.WithStandDown(0), election.WithCampaignInterval(interval))
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Start(context.Background()) }()
	for !e.IsLeader() {
		time.Sleep(time.Millisecond)
	}
	if hang {
		hanging, once := make(chan struct{}), false
		bucket.OnUpdate(func(ctx context.Context, _ []byte, _ uint64, _ func() (uint64, error)) (uint64, error) {
			if !once {
				once = true
				close(hanging)
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		<-hanging
	}
	b.Cleanup(func() {
		e.Stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return e
}

// BenchmarkIsLeader is to be compared with BenchmarkTimeNow of the same run.
func BenchmarkIsLeader(b *testing.B) {
	e := runningLeader(b, false)
	b.ReportAllocs()
	for b.Loop() {
		if !e.IsLeader() {
			b.Fatal("not the leader")
		}
	}
}

func BenchmarkIsLeaderWhileARenewalHangs(b *testing.B) {
	e := runningLeader(b, true)
	b.ReportAllocs()
	for b.Loop() {
		if !e.IsLeader() {
			b.Fatal("not the leader")
		}
	}
}

func BenchmarkTermValid(b *testing.B) {
	term, _ := runningLeader(b, false).Term()
	b.ReportAllocs()
	for b.Loop() {
		if !term.Valid() {
			b.Fatal("not valid")
		}
	}
}

var instantSink time.Time

func BenchmarkTimeNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		instantSink = time.Now()
	}
}

func BenchmarkStatus(b *testing.B) {
	e := runningLeader(b, false)
	b.ReportAllocs()
	for b.Loop() {
		e.Status()
	}
}

// BenchmarkRenewal measures the request that a leader sends every 0.75 of the TTL.
func BenchmarkRenewal(b *testing.B) {
	s := natstest.Start(b)
	bucket := s.Bucket(b, s.Connect(b), time.Hour)
	rev, err := bucket.Create(context.Background(), Key, nil)
	for b.Loop() {
		if err != nil {
			b.Fatal(err)
		}
		rev, err = bucket.Update(context.Background(), Key, nil, rev)
	}
}
