package record

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/validate"
)

// stored returns a record as somebody else might write it.
func stored(change func(r *Record)) []byte {
	r := Record{Name: "a", Instance: "i", Attempt: "i.1", Host: "h", Metadata: map[string]string{"k": "v"}}
	change(&r)
	return r.Encode()
}

func TestRecordKeepsNoMoreThanACandidateMayWrite(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	for name, tc := range map[string]struct {
		value []byte
		holds func(g *WithT, r Record)
	}{
		"long name": {stored(func(r *Record) { r.Name = long }), func(g *WithT, r Record) {
			g.Expect(r.Name).To(HavePrefix("éé"))
			g.Expect(r.Instance).To(Equal("i"), "it remains a record")
		}},
		"long host": {stored(func(r *Record) { r.Host = long }), func(g *WithT, r Record) { g.Expect(r.Host).To(HavePrefix("éé")) }},
		"long instance": {stored(func(r *Record) { r.Instance = long }), func(g *WithT, r Record) {
			g.Expect(r.Instance).To(BeEmpty(), "it is no record of ours")
			g.Expect(r.Name).To(HavePrefix(`{"version":1,"name":"a"`))
		}},
		"long attempt": {stored(func(r *Record) { r.Attempt = long }), func(g *WithT, r Record) { g.Expect(r.Instance).To(BeEmpty()) }},
		"long won":     {stored(func(r *Record) { r.Won = long }), func(g *WithT, r Record) { g.Expect(r.Won).To(BeEmpty()) }},
		"long metadata": {stored(func(r *Record) { r.Metadata["k"] = long }), func(g *WithT, r Record) {
			g.Expect(r.Metadata).To(BeEmpty())
			g.Expect(r.Instance).To(Equal("i"))
		}},
		"many successors": {stored(func(r *Record) { r.Successors = strings.Split(long[:20_000], "") }), func(g *WithT, r Record) { g.Expect(r.Successors).To(HaveLen(MaxSuccessors)) }},
		"odd ids of successors": {stored(func(r *Record) { r.Successors, r.SuccessorIDs = []string{"b", "c"}, []string{"12345678", "x"} }), func(g *WithT, r Record) {
			g.Expect(r.Named()).To(Equal([]Successor{{Name: "b"}, {Name: "c"}}))
		}},
		"many ids of successors": {stored(func(r *Record) {
			r.Successors, r.SuccessorIDs = []string{"b"}, slices.Repeat([]string{"12345678"}, 1000)
		}), func(g *WithT, r Record) {
			g.Expect(r.SuccessorIDs).To(Equal([]string{"12345678"}))
			g.Expect(cap(r.SuccessorIDs)).To(BeNumerically("<=", MaxSuccessors))
		}},
		"long successors": {stored(func(r *Record) { r.Successors = []string{"b", long, "c"} }), func(g *WithT, r Record) { g.Expect(r.Successors).To(Equal([]string{"b"})) }},
		"long queue":      {stored(func(r *Record) { r.Queue = strings.Split(long[:20_000], "") }), func(g *WithT, r Record) { g.Expect(r.Queue).To(BeEmpty()) }},
		"many priorities": {stored(func(r *Record) { r.Priorities = make([]int, 20_000) }), func(g *WithT, r Record) { g.Expect(r.Priorities).To(HaveLen(MaxPriorities)) }},
		"larger than a record may be": {stored(func(r *Record) { r.Metadata["k"] = strings.Repeat("x", MaxBytes) }), func(g *WithT, r Record) {
			g.Expect(r.Instance).To(BeEmpty())
		}},
		"bare name":     {[]byte(long), func(g *WithT, r Record) { g.Expect(r.Name).To(HavePrefix("éé")) }},
		"no text":       {[]byte(strings.Repeat("\x80", 900_000)), func(*WithT, Record) {}},
		"an odd length": {[]byte("x" + long), func(g *WithT, r Record) { g.Expect(r.Name).To(HavePrefix("xé")) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := Parse(tc.value, 0)
			tc.holds(g, r)
			withinBounds(g, r)
			g.Expect(utf8.ValidString(r.Name)).To(Equal(utf8.Valid(tc.value)), "it is cut between two characters")
		})
	}
}

// withinBounds expects a record to take no more memory than one of this package.
func withinBounds(g Gomega, r Record) {
	for what, text := range map[string]string{"name": r.Name, "host": r.Host} {
		g.Expect(len(text)).To(BeNumerically("<=", validate.MaxNameBytes), what)
	}
	for what, text := range map[string]string{"instance": r.Instance, "attempt": r.Attempt, "won": r.Won} {
		g.Expect(len(text)).To(BeNumerically("<=", MaxIDBytes), what)
	}
	size := 0
	for k, v := range r.Metadata {
		size += len(k) + len(v)
	}
	g.Expect(size).To(BeNumerically("<=", validate.MaxMetadataBytes), "metadata")
	g.Expect(cap(r.Queue)).To(BeNumerically("<=", MaxQueue), "queue")
	g.Expect(len(strings.Join(r.Queue, ""))).To(BeNumerically("<=", MaxQueue*queueIDBytes), "queue")
	g.Expect(cap(r.Priorities)).To(BeNumerically("<=", MaxPriorities), "priorities")
	g.Expect(cap(r.Successors)).To(BeNumerically("<=", MaxSuccessors), "successors")
	g.Expect(len(strings.Join(r.Successors, ""))).To(BeNumerically("<=", MaxSuccessorBytes), "successors")
}

func TestLargestRecordOfACandidateIsReadWhole(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2000, 1, 1, 0, 0, 0, 999_999_999, time.FixedZone("", 3600))
	metadata := map[string]string{}
	for i := range (validate.MaxMetadataBytes - 2) / 2 { // keys that are short, and escaped
		metadata[string([]byte{byte(i / 128), byte(i % 128)})] = ""
	}
	id := strings.Repeat("x", 22)
	r := Record{
		Name: strings.Repeat("<", validate.MaxNameBytes), Instance: id, Attempt: id + "." + strings.Repeat("z", 13), Started: now, Since: now, Term: math.MaxUint64,
		BucketCreated: now, Won: "reclaimed", Host: strings.Repeat("<", validate.MaxNameBytes), PID: math.MinInt, Priority: math.MinInt, Metadata: metadata,
		Notified: true, IntervalMs: math.MinInt64, StandDownMs: math.MinInt64, Released: now, HeadStartMs: math.MinInt64,
	}
	r.LeaseMs, r.Secret, r.Predecessors = math.MinInt64, NewSecret(), slices.Repeat([]Secret{NewSecret()}, MaxPredecessors)
	r.Commitment = r.Secret.Commitment()
	for range MaxPriorities {
		r.Priorities = append(r.Priorities, math.MinInt)
	}
	for i := range MaxSuccessors {
		r.Successors = append(r.Successors, strings.Repeat("<", MaxSuccessorBytes/MaxSuccessors-1)+fmt.Sprint(i))
		r.SuccessorIDs = append(r.SuccessorIDs, QueueID(fmt.Sprint(i)))
	}
	r.Queue = slices.Repeat([]string{QueueID("x")}, MaxQueue)
	g.Expect(validate.Metadata(metadata)).To(Succeed())
	value := r.Encode()
	g.Expect(len(value)).To(BeNumerically("<=", MaxBytes))
	g.Expect(Parse(value, 0).Encode()).To(Equal(value))
}

func TestLongNamesRemainDifferentWhenTheyAreCut(t *testing.T) {
	g := NewWithT(t)
	same := strings.Repeat("x", validate.MaxNameBytes)
	seen := map[string]bool{same: true}
	for _, end := range []string{"a", "b", "ab", strings.Repeat("y", 2*MaxBytes), strings.Repeat("z", 2*MaxBytes)} {
		bare := Parse([]byte(same+end), 0)
		g.Expect(seen).NotTo(HaveKey(bare.Name))
		seen[bare.Name] = true
		g.Expect(Parse([]byte(same+end), 0)).To(Equal(bare), "it is the same each time")
	}
}

// format0 is a record as candidates wrote it before the format had a version.
const format0 = `{"name":"a","instance":"i","attempt":"i.1","started":"2026-01-01T00:00:00Z","since":"2026-01-01T00:00:01Z","term":7,
	"bucket":"2025-12-31T00:00:00Z","won":"vacant","host":"h","pid":42,"priority":3,"metadata":{"k":"v"},"candidates":3,"levels":[3,1],"hears":true,
	"interval_ms":7500,"stand_down_ms":1500,"released":"2026-01-01T00:01:00Z","next":"b","head_start_ms":25,"heirs":["c"]}`

func TestRecordOfTheFormatBeforeIsReadForAllThatItProves(t *testing.T) {
	g := NewWithT(t)
	r := Parse([]byte(format0), 0)
	g.Expect(r.Version).To(BeZero())
	g.Expect([]string{r.Name, r.Instance, r.Attempt, r.Won, r.Host}).To(Equal([]string{"a", "i", "i.1", "vacant", "h"}))
	g.Expect(r.Term).To(BeEquivalentTo(7))
	g.Expect(r.PID).To(Equal(42))
	g.Expect(r.Priority).To(Equal(3))
	g.Expect(r.Metadata).To(Equal(map[string]string{"k": "v"}))
	g.Expect(r.BucketCreated).To(BeTemporally("==", time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)))
	g.Expect(r.Interval()).To(Equal(7500 * time.Millisecond))
	standDown, released := r.IsRelease()
	g.Expect(released).To(BeTrue())
	g.Expect(standDown).To(Equal(1500 * time.Millisecond))
}

func TestFieldsOfALaterFormatAreIgnored(t *testing.T) {
	g := NewWithT(t)
	r := Parse([]byte(`{"version":99,"name":"a","instance":"i","attempt":"i.1","mood":{"good":true},"term":7}`), 0)
	g.Expect(r).To(Equal(Record{Version: 99, Name: "a", Instance: "i", Attempt: "i.1", Term: 7}))
}

func TestReleaseOpensTheCommitmentOfItsTermAndNoOther(t *testing.T) {
	g := NewWithT(t)
	secret, other := NewSecret(), NewSecret()
	read := Parse(Record{Name: "a", Instance: "i", Attempt: "x", Commitment: secret.Commitment(), Secret: secret, Predecessors: Secrets{other, NewSecret()}}.Encode(), 0)
	g.Expect(read.Commitment.OpenedBy(read.Secret)).To(BeTrue())
	g.Expect(read.Follows(other.Commitment())).To(BeTrue())
	g.Expect(read.Follows(secret.Commitment())).To(BeFalse())
	g.Expect(read.Follows(Commitment{})).To(BeFalse())
	g.Expect(read.Commitment.OpenedBy(other)).To(BeFalse())
	g.Expect(Commitment{}.OpenedBy(Secret{})).To(BeFalse(), "no commitment is opened by no secret")
	g.Expect(Secret{}.Commitment()).To(BeZero())
}

func TestUnreadableCommitmentIsNoneAndTheRestOfTheRecordIsRead(t *testing.T) {
	for _, text := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA!", `\n\r` + "AAAAAAAAAAAAAAAAAAAA", strings.Repeat("A", 44), strings.Repeat("A", 10_000)} {
		g := NewWithT(t)
		r := Parse([]byte(`{"name":"a","instance":"i","attempt":"x","commitment":"`+text+`","secret":"`+text+`","predecessor_secrets":"`+text+`","term":7}`), 0)
		g.Expect(r.Instance).To(Equal("i"), text)
		g.Expect(r.Term).To(BeEquivalentTo(7))
		g.Expect(r.Commitment).To(BeZero(), text)
		g.Expect(r.Secret).To(BeZero(), text)
		g.Expect(r.Predecessors).To(BeEmpty(), text)
	}
}

func TestNoTwoIDsAreTheSame(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		g.Expect(id).To(MatchRegexp(`^[0-9A-Za-z_-]{22}$`))
		seen[id] = true
	}
	g.Expect(seen).To(HaveLen(1000))
}

func TestRecordSaysItsFormat(t *testing.T) {
	NewWithT(t).Expect(string(Record{Name: "a"}.Encode())).To(HavePrefix(`{"version":1,`))
}

// FuzzRecord reads what anybody may have written under a key.
func FuzzRecord(f *testing.F) {
	for _, value := range []string{
		"", "bare name", "{", "null", "[]", `{"name":"a"}`, `{"name":"a","instance":"i","attempt":"i.1"}`, format0,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","stand_down_ms":9223372036854775807}`,
		`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","successors":["b"],"head_start_ms":-1}`,
		`{"name":"` + strings.Repeat("é", 200) + `","instance":"i","attempt":"i.1","successors":["a","","b"],"priorities":[1,2,3],"metadata":{"":""}}`,
		strings.Repeat("\x80", 300),
		`{"name":"\ud800","instance":"i","attempt":"i.1","since":"9999-12-31T23:59:59+23:59","metadata":{"k":"v"}}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := Parse(value, 0)
		if r.Instance == "" && len(value) <= validate.MaxNameBytes && r.Name != string(value) {
			t.Errorf("a bare name was changed to %q", r.Name)
		}
		withinBounds(NewWithT(t), r)
		if left, ok := r.IsRelease(); left < 0 || ok && r.Instance == "" {
			t.Errorf("a release that leaves %v", left)
		}
		if d := r.HeadStart(); d < 0 || d > MaxHeadStart {
			t.Errorf("a head start of %v", d)
		}
		if again := Parse(r.Encode(), 0); r.Instance != "" && (again.Name != r.Name || again.Instance != r.Instance || again.Attempt != r.Attempt) {
			t.Errorf("%+v became %+v", r, again)
		}
	})
}
