package fleettest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Forger publishes false notifications.
type Forger struct {
	*Fleet
	nc *nats.Conn
}

// Forger returns a forger with a connection of its own.
func (f *Fleet) Forger() *Forger { return &Forger{f, f.Server.Connect(f.T)} }

// Publish publishes a change of the key with all headers that the server would set.
func (f *Forger) Publish(revision uint64, value string, headers ...string) {
	m := nats.NewMsg("election." + natstest.BucketName + "." + Key)
	m.Header.Set("Nats-Stream", "KV_"+natstest.BucketName)
	m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+Key)
	m.Header.Set("Nats-Sequence", strconv.FormatUint(revision, 10))
	m.Header.Set("Nats-Time-Stamp", time.Now().UTC().Format(time.RFC3339Nano))
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m.Data = []byte(value)
	f.Expect(f.nc.PublishMsg(m)).To(gomega.Succeed())
}

// Violations are the permission violations that the server reported to a connection.
type Violations struct {
	mu   sync.Mutex
	each []string
}

func (v *Violations) handler(_ *nats.Conn, _ *nats.Subscription, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.each = append(v.each, err.Error())
}

// Of returns how many violations mention a part of a subject.
func (v *Violations) Of(part string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, each := range v.each {
		if strings.Contains(each, part) {
			n++
		}
	}
	return n
}

// String lists them.
func (v *Violations) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.each, "\n")
}

// Restricted returns a candidate with the permissions of a user, and the violations that are reported to its connection.
func (f *Fleet) Restricted(user, name string, withJetStream bool, opts ...election.Option) (*Candidate, *Violations) {
	f.Helper()
	v, l := &Violations{}, f.Server.Link(f.T)
	js, err := jetstream.New(natstest.Connect(f.T, l, nats.UserInfo(user, "x"), nats.ErrorHandler(v.handler)))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	if withJetStream {
		opts = append(opts, election.WithJetStream(js))
	}
	return f.CandidateOn(name, l, bucket, opts...), v
}
