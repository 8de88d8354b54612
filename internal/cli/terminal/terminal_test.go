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

// blockedWriter is a writer that blocks until the test closes release.
type blockedWriter struct {
	release chan struct{}
	entered chan struct{} // receives a value when a write begins; may be nil
	bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	if w.entered != nil {
		w.entered <- struct{}{}
	}
	<-w.release
	return w.Buffer.Write(p)
}

func TestQueueNeverBlocksItsWriter(t *testing.T) {
	g := NewWithT(t)
	w := &blockedWriter{release: make(chan struct{})}
	q := NewQueue(w, DroppedLines, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 3 * queueLimit / len(line) {
		g.Expect(q.Write(line)).To(Equal(len(line)))
	}
	close(w.release)
	q.Close()
	g.Expect(w.Len()).To(BeNumerically("<=", 2*queueLimit+len(line)), "output that is not read is dropped")
	g.Expect(w.Len()).To(BeNumerically(">=", queueLimit-len(line)))
}

func TestQueueReportsLinesDroppedAtItsEnd(t *testing.T) {
	g := NewWithT(t)
	w := &blockedWriter{release: make(chan struct{}), entered: make(chan struct{}, 10)}
	q := NewQueue(w, DroppedLines, func(error) {})
	line := []byte(strings.Repeat("x", 1023) + "\n")
	_, _ = q.Write(line)
	<-w.entered // this write blocks: the queue fills up, and then drops lines
	for range queueLimit/len(line) + 7 {
		_, _ = q.Write(line)
	}
	closed := make(chan struct{})
	go func() { q.Close(); close(closed) }()
	g.Eventually(q.isClosed, "20s").Should(BeTrue())
	_, _ = q.Write(line) // a line after Close is not counted as dropped
	close(w.release)
	<-closed
	g.Expect(w.String()[w.Len()-60:]).To(HaveSuffix("x\n... 7 lines dropped here: the output was not read in time\n"))
}

// isClosed reports whether the queue is closed.
func (q *Queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func TestQueueReportsAWriteErrorOnce(t *testing.T) {
	g := NewWithT(t)
	r, w := io.Pipe()
	g.Expect(r.Close()).To(Succeed())
	failed := make(chan error, 2)
	q := NewQueue(w, DroppedLines, func(err error) { failed <- err })
	_, _ = q.Write([]byte("a"))
	_, _ = q.Write([]byte("b"))
	q.Close()
	g.Expect(failed).To(Receive(MatchError(io.ErrClosedPipe)))
	g.Expect(failed).NotTo(Receive())
}

func TestDurationsAreRounded(t *testing.T) {
	g := NewWithT(t)
	for d, text := range map[time.Duration]string{
		1234567 * time.Nanosecond:       "1ms",
		2 * time.Second:                 "2s",
		3141592653 * time.Nanosecond:    "3.14s",
		75400 * time.Millisecond:        "1m15s",
		100*time.Minute + 8*time.Second: "1h40m0s",
	} {
		g.Expect(FormatDuration(d)).To(Equal(text))
	}
}

func TestMinMedianMaxSortsACopyOfItsValues(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct{ values, want []float64 }{
		{nil, []float64{0, 0, 0}},
		{[]float64{3}, []float64{3, 3, 3}},
		{[]float64{3, 1}, []float64{1, 2, 3}},
		{[]float64{9, 1, 5}, []float64{1, 5, 9}},
		{[]float64{4, 1, 3, 2}, []float64{1, 2.5, 4}},
	} {
		lo, mid, hi := MinMedianMax(c.values)
		g.Expect([]float64{lo, mid, hi}).To(Equal(c.want))
	}
	values := []float64{3, 1, 2}
	MinMedianMax(values)
	g.Expect(values).To(Equal([]float64{3, 1, 2}), "the argument keeps its order")
}

// FuzzPrintable checks that untrusted text becomes visible text.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{
		"web-1", "Gr\u00fc\u00dfe, \u4e16\u754c", "\x1b[2J\x1b]0;title\a", "a\r\nb\t", "\u009b31m", "\u202egnp.exe", "\xff\xfe\xed\xa0\x80", "\ufffd", "\u115f\u2800\u200b\U000e0041",
		strings.Repeat("x", MaxText), strings.Repeat("\x00", MaxText+1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, printable := Printable(text), true
		for _, r := range text {
			printable = printable && visible(r)
		}
		for _, r := range got {
			if !visible(r) {
				t.Errorf("%q becomes text with %q", text, r)
			}
		}
		if !utf8.ValidString(got) || len(got) > MaxText*len(`\U0010ffff`)+len("\u2026") {
			t.Errorf("%q becomes %q", text, got)
		}
		if printable && utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxText && got != text {
			t.Errorf("%q is printable but becomes %q", text, got)
		}
	})
}

// visible reports whether a character is visible and affects nothing else.
func visible(r rune) bool {
	return (unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) || r == ' ') && !strings.ContainsRune(invisible, r)
}
