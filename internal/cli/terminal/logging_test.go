package terminal

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTimesInLogLinesAreOneWord(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	slog.New(NewLogHandler(&out, Style{}, slog.LevelInfo)).Info("State changed", "leads-at", at, "name", "evil\x1b[2J")
	g.Expect(out.String()).To(HaveSuffix("INFO   State changed  leads-at=2026-01-02T03:04:05.678Z  name=\"evil\\x1b[2J\"\n"))
}
