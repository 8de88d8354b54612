package election

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// written returns a record as somebody else might write it.
func stored(change func(r *record)) []byte {
	r := record{Name: "a", Instance: "i", Attempt: "i.1", Host: "h", Metadata: map[string]string{"k": "v"}}
	change(&r)
	return r.encode()
}

func TestRecordKeepsNoMoreThanACandidateMayWrite(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	for name, tc := range map[string]struct {
		value []byte
		holds func(g *WithT, r record)
	}{
		"long name": {stored(func(r *record) { r.Name = long }), func(g *WithT, r record) {
			g.Expect(r.Name).To(HavePrefix("éé"))
			g.Expect(r.Instance).To(Equal("i"), "it remains a record")
		}},
		"long host": {stored(func(r *record) { r.Host = long }), func(g *WithT, r record) { g.Expect(r.Host).To(HavePrefix("éé")) }},
		"long next": {stored(func(r *record) { r.Next = long }), func(g *WithT, r record) { g.Expect(r.headStart("b")).To(BeZero(), "it is no release") }},
		"long instance": {stored(func(r *record) { r.Instance = long }), func(g *WithT, r record) {
			g.Expect(r.Instance).To(BeEmpty(), "it is no record of ours")
			g.Expect(r.Name).To(HavePrefix(`{"name":"a"`))
		}},
		"long attempt": {stored(func(r *record) { r.Attempt = long }), func(g *WithT, r record) { g.Expect(r.Instance).To(BeEmpty()) }},
		"long won":     {stored(func(r *record) { r.Won = reason(long) }), func(g *WithT, r record) { g.Expect(r.Won).To(BeEmpty()) }},
		"long metadata": {stored(func(r *record) { r.Metadata["k"] = long }), func(g *WithT, r record) {
			g.Expect(r.Metadata).To(BeEmpty())
			g.Expect(r.Instance).To(Equal("i"))
		}},
		"many heirs":  {stored(func(r *record) { r.Heirs = strings.Split(long[:20_000], "") }), func(g *WithT, r record) { g.Expect(r.Heirs).To(HaveLen(maxHeirs)) }},
		"long heirs":  {stored(func(r *record) { r.Heirs = []string{"b", long, "c"} }), func(g *WithT, r record) { g.Expect(r.Heirs).To(Equal([]string{"b"})) }},
		"many levels": {stored(func(r *record) { r.Levels = make([]int, 20_000) }), func(g *WithT, r record) { g.Expect(r.Levels).To(HaveLen(maxLevels)) }},
		"larger than a record may be": {stored(func(r *record) { r.Metadata["k"] = strings.Repeat("x", maxRecordBytes) }), func(g *WithT, r record) {
			g.Expect(r.Instance).To(BeEmpty())
		}},
		"bare name":     {[]byte(long), func(g *WithT, r record) { g.Expect(r.Name).To(HavePrefix("éé")) }},
		"no text":       {[]byte(strings.Repeat("\x80", 900_000)), func(*WithT, record) {}},
		"an odd length": {[]byte("x" + long), func(g *WithT, r record) { g.Expect(r.Name).To(HavePrefix("xé")) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := parseRecord(tc.value)
			tc.holds(g, r)
			withinBounds(g, r)
			g.Expect(utf8.ValidString(r.Name)).To(Equal(utf8.Valid(tc.value)), "it is cut between two characters")
		})
	}
}

// withinBounds expects a record to take no more memory than one of this package.
func withinBounds(g Gomega, r record) {
	for what, text := range map[string]string{"name": r.Name, "host": r.Host, "next": r.Next} {
		g.Expect(len(text)).To(BeNumerically("<=", maxNameBytes), what)
	}
	for what, text := range map[string]string{"instance": r.Instance, "attempt": r.Attempt, "won": string(r.Won)} {
		g.Expect(len(text)).To(BeNumerically("<=", maxIDBytes), what)
	}
	size := 0
	for k, v := range r.Metadata {
		size += len(k) + len(v)
	}
	g.Expect(size).To(BeNumerically("<=", maxMetadataBytes), "metadata")
	g.Expect(cap(r.Levels)).To(BeNumerically("<=", maxLevels), "levels")
	g.Expect(cap(r.Heirs)).To(BeNumerically("<=", maxHeirs), "heirs")
	g.Expect(len(strings.Join(r.Heirs, ""))).To(BeNumerically("<=", maxHeirBytes), "heirs")
}

func TestLargestRecordOfACandidateIsReadWhole(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2000, 1, 1, 0, 0, 0, 999_999_999, time.FixedZone("", 3600))
	metadata := map[string]string{}
	for i := range (maxMetadataBytes - 2) / 2 { // keys that are short, and escaped
		metadata[string([]byte{byte(i / 128), byte(i % 128)})] = ""
	}
	id := strings.Repeat("x", 22)
	r := record{
		Name: strings.Repeat("<", maxNameBytes), Instance: id, Attempt: id + "." + strings.Repeat("z", 13), Started: now, Since: now, Term: math.MaxUint64,
		Bucket: now, Won: reasonReclaimed, Host: strings.Repeat("<", maxNameBytes), PID: math.MinInt, Priority: math.MinInt, Metadata: metadata,
		Candidates: math.MinInt, Hears: true, StandDownMs: math.MinInt64, Released: now, Next: strings.Repeat("<", maxNameBytes), HeadStartMs: math.MinInt64,
	}
	for range maxLevels {
		r.Levels = append(r.Levels, math.MinInt)
	}
	for i := range maxHeirs {
		r.Heirs = append(r.Heirs, strings.Repeat("<", maxHeirBytes/maxHeirs-1)+fmt.Sprint(i))
	}
	g.Expect((&options{metadata: metadata}).validateMetadata()).To(Succeed())
	value := r.encode()
	g.Expect(len(value)).To(BeNumerically("<=", maxRecordBytes))
	g.Expect(parseRecord(value).encode()).To(Equal(value))
}

func TestLongNamesRemainDifferentWhenTheyAreCut(t *testing.T) {
	g := NewWithT(t)
	same := strings.Repeat("x", maxNameBytes)
	seen := map[string]bool{same: true}
	for _, end := range []string{"a", "b", "ab", strings.Repeat("y", 2*maxRecordBytes), strings.Repeat("z", 2*maxRecordBytes)} {
		bare := parseRecord([]byte(same + end))
		g.Expect(seen).NotTo(HaveKey(bare.Name))
		seen[bare.Name] = true
		g.Expect(parseRecord([]byte(same+end))).To(Equal(bare), "it is the same each time")
	}
}

func TestAttemptsOfStrangersTakeLittleMemory(t *testing.T) {
	g := NewWithT(t)
	a := &ear{ttl: 10 * time.Second, counting: true, others: map[string]standing{}}
	for i := range 3 * maxCounted {
		a.attempted(parseRecord(stored(func(r *record) {
			r.Instance, r.Name = fmt.Sprint(i), strings.Repeat("x", 1000)
		})))
	}
	g.Expect(len(a.others)).To(BeNumerically("<=", 4096))
	for instance, s := range a.others {
		g.Expect(len(instance) + len(s.name)).To(BeNumerically("<", 500))
	}
}
