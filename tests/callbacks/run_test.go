package callbacks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestRunCallsTheWorkOncePerTermAndReturnsItsError(t *testing.T) {
	Run(t, func(f *Fleet) {
		failure := errors.New("out of paper")
		terms := 0
		a := f.Candidate("a").BeginRun(func(ctx context.Context, term election.Term) error {
			terms++
			f.Expect(term.Valid()).To(BeTrue())
			if terms == 3 {
				return failure
			}
			<-ctx.Done()
			f.Expect(context.Cause(ctx)).To(MatchError(election.ErrNotLeader))
			f.Expect(term.Valid()).To(BeFalse())
			return errors.New("after the term")
		})
		After(Interval)
		f.Expect(terms).To(Equal(1))
		f.Write("stranger")
		After(Interval + TTL + Interval + Interval)
		f.Expect(terms).To(Equal(2))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Interval)
		f.Expect(<-a.Result).To(MatchError(failure))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
		f.Expect(a.Seen()).To(Or(HaveLen(4), HaveLen(6)), "the third term may have been too short to be announced")
	})
}

// ending is how a term ends in TestWorkContextEndsWithTheReason.
type ending struct {
	*Fleet
	a      *Candidate
	bucket *Faulty
	conn   *nats.Conn
	disk   Disk
	finish chan struct{} // ends the work
}

var endings = map[election.Reason]func(e *ending){
	election.ReasonStopped:      func(e *ending) { e.a.Stop() },
	election.ReasonResigned:     func(e *ending) { e.Expect(e.a.Resign(context.Background())).To(Succeed()) },
	election.ReasonTransferred:  func(e *ending) { e.Expect(e.a.Transfer(context.Background(), "b")).To(Succeed()) },
	election.ReasonRelinquished: func(*ending) { After(time.Hour + 2*time.Minute) },
	election.ReasonUnhealthy:    func(e *ending) { e.disk.Full.Store(true); After(4 * CheckInterval) },
	election.ReasonWorkEnded:    func(e *ending) { close(e.finish) },
	election.ReasonOverwritten:  func(e *ending) { e.Write("stranger") },
	election.ReasonCloned: func(e *ending) {
		r := e.Stored()
		r.Attempt = record.NewID()
		e.Replace(r)
		After(Interval) // a record like its own is noticed by the next renewal
	},
	election.ReasonDeleted: func(e *ending) { e.Expect(e.Bucket.Delete(context.Background(), Key)).To(Succeed()) },
	election.ReasonBucketReplaced: func(e *ending) {
		e.bucket.OnStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			s, err := status()
			if err != nil {
				return nil, err
			}
			info := *s.(*jetstream.KeyValueBucketStatus).StreamInfo()
			info.Created = time.Now()
			return remadeStatus{s, &info}, nil
		})
		e.bucket.FailOnce() // after a failure the leader loads the bucket's info again
		After(Interval)
	},
	election.ReasonRewound: func(e *ending) {
		term, _ := e.a.Term()
		e.bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, RefusalNaming(term.Number - 1)
		})
		After(Interval)
	},
	election.ReasonClosed:   func(e *ending) { e.conn.Close() },
	election.ReasonDeadline: func(e *ending) { e.a.Link.Cut(); After(Lease) },
}

// remadeStatus is the status of a bucket that was made again.
type remadeStatus struct {
	jetstream.KeyValueStatus
	info *jetstream.StreamInfo
}

func (s remadeStatus) StreamInfo() *jetstream.StreamInfo { return s.info }

func TestWorkContextEndsWithTheReason(t *testing.T) {
	natstest.SkipIfShort(t)
	for reason, end := range endings {
		t.Run(string(reason), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Write("before") // so that the first term has a number above 1
				After(TTL + 2*time.Second)
				l := f.Server.Link(f.T)
				e := &ending{Fleet: f, conn: natstest.Connect(f.T, l), finish: make(chan struct{})}
				js, err := jetstream.New(e.conn)
				f.Expect(err).NotTo(HaveOccurred())
				e.bucket = &Faulty{KeyValue: f.Bare(e.conn)}
				var term election.Term
				var cause error
				e.a = f.CandidateOn("a", l, e.bucket, election.WithJetStream(js), election.WithHealthCheck(e.disk.Check), election.WithRelinquish("1h"))
				e.a.BeginRun(func(ctx context.Context, t election.Term) error {
					term = t
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-e.finish:
						context.AfterFunc(ctx, func() { cause = context.Cause(ctx) })
					}
					return nil
				})
				After(2 * Interval)
				f.Expect(e.a.IsLeader()).To(BeTrue())
				f.Connected("b").Begin()
				After(3 * Interval)
				f.Expect(cause).NotTo(HaveOccurred())
				end(e)
				After(time.Second)
				f.Expect(cause).To(BeAssignableToTypeOf(&election.TermEndedError{}))
				f.Expect(cause).To(MatchError(election.ErrNotLeader))
				f.Expect(cause).To(HaveField("Reason", reason))
				f.Expect(cause).To(HaveField("Term", term))
				f.Expect(cause.Error()).To(ContainSubstring(string(reason)))
			}, Republished)
		})
	}
}

func TestEndingsHasARowForEachReason(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("../../state.go")
	g.Expect(err).NotTo(HaveOccurred())
	_, ends, found := strings.Cut(string(source), "// The reasons to become a candidate")
	g.Expect(found).To(BeTrue())
	listed := map[election.Reason]bool{}
	for _, reason := range regexp.MustCompile(`Reason = "([a-z-]+)"`).FindAllStringSubmatch(ends, -1) {
		listed[election.Reason(reason[1])] = true
	}
	rows := map[election.Reason]bool{
		election.ReasonStarted: true, // which begins the run, and ends no term
		election.ReasonDied:    true, // which a witness states, because the leader cannot
	}
	for reason := range endings {
		rows[reason] = true
	}
	g.Expect(rows).To(Equal(listed))
}

func TestWorkThatReturnsErrNotLeaderResigns(t *testing.T) {
	Run(t, func(f *Fleet) {
		terms := 0
		a := f.Candidate("a").BeginRun(func(ctx context.Context, _ election.Term) error {
			if terms++; terms == 1 {
				return fmt.Errorf("the database refused the write: %w", election.ErrNotLeader)
			}
			<-ctx.Done()
			return nil
		})
		After(Interval + Instant)
		f.Expect(terms).To(Equal(1))
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(f.Record()).To(ContainSubstring(`"released"`), "other candidates need not wait until the key expires")
		After(Interval - 2*Instant)
		f.Expect(a.State()).To(Equal(election.CandidateState), "the candidate holds back")
		After(TTL)
		f.Expect(terms).To(Equal(2))
		f.Expect(a.IsLeader()).To(BeTrue())
		a.End()
		f.Expect(<-a.Result).To(Succeed())
	})
}

func TestRunReturnsNilAfterTheStoppedWorkReturned(t *testing.T) {
	Run(t, func(f *Fleet) {
		returned := false
		a := f.Candidate("a").BeginRun(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(3 * TTL) // longer than the release timeout
			returned = true
			return ctx.Err()
		})
		After(Interval)
		a.End()
		f.Expect(returned).To(BeTrue())
		f.Expect(<-a.Result).To(Succeed())
	})
}

func TestFailingWorkReleasesTheKeyAndIsReturnedAsAnError(t *testing.T) {
	natstest.SkipIfShort(t)
	for text, fail := range map[string]func(){
		"paper jam":           func() { panic("paper jam") },
		"ended its goroutine": runtime.Goexit,
	} {
		t.Run(text, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Candidate("a").BeginRun(func(context.Context, election.Term) error { fail(); return nil })
				f.Expect(<-a.Result).To(MatchError(ContainSubstring(text)))
				f.Expect(f.Record()).To(ContainSubstring(`"released"`))
			})
		})
	}
}

func TestRunWithoutWorkIsRefused(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Expect(f.Candidate("a").Run(context.Background(), nil)).To(MatchError(election.ErrInvalidOption))
	})
}

func TestRunIgnoresTheErrorOfItsOwnContext(t *testing.T) {
	Run(t, func(f *Fleet) {
		for range UnlessShort(100, 10) {
			a := f.Candidate("a")
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				a.Result <- a.Run(ctx, func(context.Context, election.Term) error {
					<-ctx.Done() // the context of Run, which may end before that of the work
					return ctx.Err()
				})
			}()
			After(Interval)
			cancel()
			f.Expect(<-a.Result).To(Succeed())
		}
	})
}
