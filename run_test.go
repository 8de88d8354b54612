package election_test

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
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestRunCallsTheWorkOncePerTermAndReturnsItsError(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		failure := errors.New("out of paper")
		terms := 0
		a := f.candidate("a").run(func(ctx context.Context, term election.Term) error {
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
		after(interval)
		f.Expect(terms).To(Equal(1))
		f.Write("stranger")
		after(interval + ttl + interval + interval)
		f.Expect(terms).To(Equal(2))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(interval)
		f.Expect(<-a.result).To(MatchError(failure))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		f.Expect(a.seen()).To(Or(HaveLen(4), HaveLen(6)), "the third term may have been too short to be announced")
	})
}

// ending is how a term ends in TestWorkContextEndsWithTheReason.
type ending struct {
	*fleet
	a      *candidate
	bucket *faulty
	conn   *nats.Conn
	disk   disk
	finish chan struct{} // ends the work
}

var endings = map[election.Reason]func(e *ending){
	election.ReasonStopped:      func(e *ending) { e.a.Stop() },
	election.ReasonResigned:     func(e *ending) { e.Expect(e.a.Resign(context.Background())).To(Succeed()) },
	election.ReasonTransferred:  func(e *ending) { e.Expect(e.a.Transfer(context.Background(), "b")).To(Succeed()) },
	election.ReasonRelinquished: func(*ending) { after(time.Hour + 2*time.Minute) },
	election.ReasonUnhealthy:    func(e *ending) { e.disk.full.Store(true); after(4 * checkInterval) },
	election.ReasonWorkEnded:    func(e *ending) { close(e.finish) },
	election.ReasonOverwritten:  func(e *ending) { e.Write("stranger") },
	election.ReasonCloned: func(e *ending) {
		r := e.stored()
		r.Attempt = record.NewID()
		e.replace(r)
		after(interval) // a record like its own is noticed by the next renewal
	},
	election.ReasonDeleted: func(e *ending) { e.Expect(e.Bucket.Delete(context.Background(), key)).To(Succeed()) },
	election.ReasonBucketReplaced: func(e *ending) {
		e.bucket.onStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			s, err := status()
			if err != nil {
				return nil, err
			}
			info := *s.(*jetstream.KeyValueBucketStatus).StreamInfo()
			info.Created = time.Now()
			return remadeStatus{s, &info}, nil
		})
		e.bucket.failOnce() // after a failure the leader loads the bucket's info again
		after(interval)
	},
	election.ReasonRewound: func(e *ending) {
		term, _ := e.a.Term()
		e.bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, refusalNaming(term.Number - 1)
		})
		after(interval)
	},
	election.ReasonClosed:   func(e *ending) { e.conn.Close() },
	election.ReasonDeadline: func(e *ending) { e.a.link.Cut(); after(lease) },
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
			onVirtualTime(t, func(f *fleet) {
				f.Write("before") // so that the first term has a number above 1
				after(ttl + 2*time.Second)
				l := f.Server.Link(f.T)
				e := &ending{fleet: f, conn: natstest.Connect(f.T, l), finish: make(chan struct{})}
				js, err := jetstream.New(e.conn)
				f.Expect(err).NotTo(HaveOccurred())
				e.bucket = &faulty{KeyValue: f.Bare(e.conn)}
				var term election.Term
				var cause error
				e.a = f.candidateOn("a", l, e.bucket, election.WithJetStream(js), election.WithHealthCheck(e.disk.check), election.WithRelinquish("1h"))
				e.a.run(func(ctx context.Context, t election.Term) error {
					term = t
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-e.finish:
						context.AfterFunc(ctx, func() { cause = context.Cause(ctx) })
					}
					return nil
				})
				after(2 * interval)
				f.Expect(e.a.IsLeader()).To(BeTrue())
				f.connected("b").start()
				after(3 * interval)
				f.Expect(cause).NotTo(HaveOccurred())
				end(e)
				after(time.Second)
				f.Expect(cause).To(BeAssignableToTypeOf(&election.TermEndedError{}))
				f.Expect(cause).To(MatchError(election.ErrNotLeader))
				f.Expect(cause).To(HaveField("Reason", reason))
				f.Expect(cause).To(HaveField("Term", term))
				f.Expect(cause.Error()).To(ContainSubstring(string(reason)))
			}, republished)
		})
	}
}

func TestEndingsHasARowForEachReason(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("state.go")
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
	onVirtualTime(t, func(f *fleet) {
		terms := 0
		a := f.candidate("a").run(func(ctx context.Context, _ election.Term) error {
			if terms++; terms == 1 {
				return fmt.Errorf("the database refused the write: %w", election.ErrNotLeader)
			}
			<-ctx.Done()
			return nil
		})
		after(interval + instant)
		f.Expect(terms).To(Equal(1))
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(ContainSubstring(`"released"`), "other candidates need not wait until the key expires")
		after(interval - 2*instant)
		f.Expect(a.State()).To(Equal(election.CandidateState), "the candidate holds back")
		after(ttl)
		f.Expect(terms).To(Equal(2))
		f.Expect(a.IsLeader()).To(BeTrue())
		a.shutdown()
		f.Expect(<-a.result).To(Succeed())
	})
}

func TestRunReturnsNilAfterTheStoppedWorkReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		returned := false
		a := f.candidate("a").run(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(3 * ttl) // longer than the release timeout
			returned = true
			return ctx.Err()
		})
		after(interval)
		a.shutdown()
		f.Expect(returned).To(BeTrue())
		f.Expect(<-a.result).To(Succeed())
	})
}

func TestFailingWorkReleasesTheKeyAndIsReturnedAsAnError(t *testing.T) {
	natstest.SkipIfShort(t)
	for text, fail := range map[string]func(){
		"paper jam":           func() { panic("paper jam") },
		"ended its goroutine": runtime.Goexit,
	} {
		t.Run(text, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.candidate("a").run(func(context.Context, election.Term) error { fail(); return nil })
				f.Expect(<-a.result).To(MatchError(ContainSubstring(text)))
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
			})
		})
	}
}

func TestRunWithoutWorkIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Expect(f.candidate("a").Run(context.Background(), nil)).To(MatchError(election.ErrInvalidOption))
	})
}

func TestRunIgnoresTheErrorOfItsOwnContext(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for range unlessShort(100, 10) {
			a := f.candidate("a")
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				a.result <- a.Run(ctx, func(context.Context, election.Term) error {
					<-ctx.Done() // the context of Run, which may end before that of the work
					return ctx.Err()
				})
			}()
			after(interval)
			cancel()
			f.Expect(<-a.result).To(Succeed())
		}
	})
}
