package recipes

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

type objectStage struct {
	*stage
	objects  jetstream.ObjectStore
	pointers jetstream.KeyValue
}

func newObjectStage(t *testing.T) *objectStage {
	s := &objectStage{stage: newStage(t)}
	var err error
	s.objects, err = s.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "REPORTS", Storage: jetstream.MemoryStorage})
	s.Expect(err).NotTo(HaveOccurred())
	s.pointers, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "POINTERS", Storage: jetstream.MemoryStorage})
	s.Expect(err).NotTo(HaveOccurred())
	return s
}

func (s *objectStage) open(t election.Term) *fence.Bucket {
	b, err := fence.OpenBucket(ctx, s.js, "POINTERS", t)
	s.Expect(err).NotTo(HaveOccurred())
	return b
}

func (s *objectStage) put(b *fence.Bucket, t election.Term, name, text string) error {
	return PutObject(ctx, s.objects, b, t, name, strings.NewReader(text))
}

func (s *objectStage) get(name string) string {
	data, err := GetObject(ctx, s.objects, s.pointers, name)
	s.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// stored returns what is kept in the store, whether anything points to it or not.
func (s *objectStage) stored() (all []string) {
	infos, err := s.objects.List(ctx)
	if err != nil {
		s.Expect(err).To(MatchError(jetstream.ErrNoObjectsFound))
	}
	for _, info := range infos {
		text, err := s.objects.GetString(ctx, info.Name)
		s.Expect(err).NotTo(HaveOccurred())
		all = append(all, text)
	}
	return all
}

func TestNameNeverPointsToWhatAnOlderTermStoredLate(t *testing.T) {
	s := newObjectStage(t)
	old := s.open(s.old)
	s.Expect(s.put(old, s.old, "daily", "of old")).To(Succeed())
	now := s.open(s.now)
	s.Expect(s.get("daily")).To(Equal("of old"))

	s.Expect(s.put(old, s.old, "daily", "late")).To(MatchError(fence.ErrFenced))
	s.Expect(s.get("daily")).To(Equal("of old"))
	s.Expect(s.stored()).To(ConsistOf("of old"), "what was refused is gone")
	s.Expect(s.put(now, s.now, "daily", "of new")).To(Succeed())
	s.Expect(s.get("daily")).To(Equal("of new"))
}

func TestSweepDeletesWhatOlderTermsLeftAndNothingElse(t *testing.T) {
	s := newObjectStage(t)
	old := s.open(s.old)
	for _, text := range []string{"1", "2", "3"} {
		s.Expect(s.put(old, s.old, "daily", text)).To(Succeed())
	}
	s.Expect(s.put(old, s.old, "daily/0", "another's")).To(Succeed())
	now := s.open(s.now)
	s.Expect(SweepObjects(ctx, s.objects, now, s.now, "daily")).To(Succeed())
	s.Expect(s.stored()).To(ConsistOf("3", "another's"))
	s.Expect(s.get("daily")).To(Equal("3"))

	s.Expect(s.put(now, s.now, "daily", "4")).To(Succeed())
	s.Expect(s.put(now, s.now, "daily", "5")).To(Succeed())
	s.Expect(SweepObjects(ctx, s.objects, now, s.now, "daily")).To(Succeed())
	s.Expect(s.stored()).To(ConsistOf("4", "5", "another's"))
}

func TestSweepOfADeposedLeaderSparesWhatItsSuccessorStored(t *testing.T) {
	s := newObjectStage(t)
	old, now := s.open(s.old), s.open(s.now)
	s.Expect(s.put(now, s.now, "daily", "1")).To(Succeed())
	s.Expect(s.put(now, s.now, "daily", "2")).To(Succeed())
	s.Expect(SweepObjects(ctx, s.objects, old, s.old, "daily")).To(Succeed())
	s.Expect(s.stored()).To(ConsistOf("1", "2"))
}

func TestNameWithoutItsObjectIsAnError(t *testing.T) {
	s := newObjectStage(t)
	_, err := GetObject(ctx, s.objects, s.pointers, "daily")
	s.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
	_, err = s.open(s.now).Put(ctx, "daily", []byte("nothing"))
	s.Expect(err).NotTo(HaveOccurred())
	_, err = GetObject(ctx, s.objects, s.pointers, "daily")
	s.Expect(err).To(MatchError(jetstream.ErrObjectNotFound))
}
