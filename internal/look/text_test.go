package look

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/terminal"
)

func TestOfMuchMetadataTheSamePartIsShownEachTime(t *testing.T) {
	g := NewWithT(t)
	l := election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}
	for i := range 500 {
		l.Metadata[fmt.Sprintf("key-%03d", i)] = "v"
	}
	first := Shown(l).Metadata
	g.Expect(first).To(HaveLen(terminal.MaxMetadata))
	g.Expect(first).To(HaveKey("key-000"))
	g.Expect(Shown(l).Metadata).To(Equal(first))
	g.Expect(l.Metadata).To(HaveLen(501), "what is shown is a copy")
	g.Expect(Shown(election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}).Metadata["long"]).To(HaveLen(terminal.MaxValue + len("…")))
}
