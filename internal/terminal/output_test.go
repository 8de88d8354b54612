package terminal

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/gomega"
)

// stuck is a writer that takes nothing until it is released.
type stuck struct {
	release chan struct{}
	entered chan struct{} // tells of each write that begins; nil if nobody asks
	bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	<-s.release
	return s.Buffer.Write(p)
}

func TestOutputNeverMakesAnElectionWait(t *testing.T) {
	g := NewWithT(t)
	w := &stuck{release: make(chan struct{})}
	q := NewQueue(w, Dropped, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 3 * queuedLimit / len(line) {
		g.Expect(q.Write(line)).To(Equal(len(line)))
	}
	close(w.release)
	q.Close()
	g.Expect(w.Len()).To(BeNumerically("<=", 2*queuedLimit+len(line)), "what nobody reads is dropped")
	g.Expect(w.Len()).To(BeNumerically(">=", queuedLimit-len(line)))
}

func TestOutputThatEndsInAGapSaysSo(t *testing.T) {
	g := NewWithT(t)
	w := &stuck{release: make(chan struct{}), entered: make(chan struct{}, 10)}
	q := NewQueue(w, Dropped, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	_, _ = q.Write(line)
	<-w.entered // and does not return: from here on lines are kept, and then dropped
	for range queuedLimit/len(line) + 7 {
		_, _ = q.Write(line)
	}
	closed := make(chan struct{})
	go func() { q.Close(); close(closed) }()
	g.Eventually(q.isClosed).Should(BeTrue())
	_, _ = q.Write(line) // after its end there is no output that it could be missing from
	close(w.release)
	<-closed
	g.Expect(w.String()[w.Len()-60:]).To(HaveSuffix("x\n... 7 lines dropped here, for nobody read them\n"))
}

// isClosed says whether the queue takes no more.
func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func TestOutputThatCannotBeWrittenIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	r, w := io.Pipe()
	g.Expect(r.Close()).To(Succeed())
	failed := make(chan error, 2)
	q := NewQueue(w, Dropped, func(err error) { failed <- err })
	_, _ = q.Write([]byte("a"))
	_, _ = q.Write([]byte("b"))
	q.Close()
	g.Expect(failed).To(Receive(MatchError(io.ErrClosedPipe)))
	g.Expect(failed).NotTo(Receive())
}

func TestDurationsAreRoundedToWhatMatters(t *testing.T) {
	g := NewWithT(t)
	for d, text := range map[time.Duration]string{
		1234567 * time.Nanosecond:       "1ms",
		2 * time.Second:                 "2s",
		3141592653 * time.Nanosecond:    "3.14s",
		75400 * time.Millisecond:        "1m15s",
		100*time.Minute + 8*time.Second: "1h40m0s",
	} {
		g.Expect(Human(d)).To(Equal(text))
	}
}

func TestSpreadIsThatOfTheSortedFigures(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct{ figures, want []float64 }{
		{nil, []float64{0, 0, 0}},
		{[]float64{3}, []float64{3, 3, 3}},
		{[]float64{3, 1}, []float64{1, 2, 3}},
		{[]float64{9, 1, 5}, []float64{1, 5, 9}},
		{[]float64{4, 1, 3, 2}, []float64{1, 2.5, 4}},
	} {
		lo, mid, hi := Spread(c.figures)
		g.Expect([]float64{lo, mid, hi}).To(Equal(c.want))
	}
	figures := []float64{3, 1, 2}
	Spread(figures)
	g.Expect(figures).To(Equal([]float64{3, 1, 2}), "the order in which they were measured stays")
}

// FuzzPrintable shows text that somebody else wrote.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{
		"web-1", "Gr\u00fc\u00dfe, \u4e16\u754c", "\x1b[2J\x1b]0;title\a", "a\r\nb\t", "\u009b31m", "\u202egnp.exe", "\xff\xfe\xed\xa0\x80", "\ufffd", "\u115f\u2800\u200b\U000e0041",
		strings.Repeat("x", MaxText), strings.Repeat("\x00", MaxText+1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, harmless := Printable(text), true
		for _, r := range text {
			harmless = harmless && visible(r)
		}
		for _, r := range got {
			if !visible(r) {
				t.Errorf("%q is shown with %q", text, r)
			}
		}
		if !utf8.ValidString(got) || len(got) > MaxText*len(`\U0010ffff`)+len("\u2026") {
			t.Errorf("%q is shown as %q", text, got)
		}
		if harmless && utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxText && got != text {
			t.Errorf("%q is harmless and shown as %q", text, got)
		}
	})
}

// visible says whether a character leaves a trace where it stands, and none elsewhere.
func visible(r rune) bool {
	return (unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) || r == ' ') && !strings.ContainsRune(unseen, r)
}
