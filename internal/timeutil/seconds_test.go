package timeutil_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/timeutil"
)

func TestDurationsAreSecondsInJSONAndKeepTheirNanoseconds(t *testing.T) {
	g := NewWithT(t)
	for d, text := range map[time.Duration]string{
		0: "0", 1500 * time.Millisecond: "1.5", -time.Microsecond: "-0.000001", 87*time.Hour + 1: "313200.000000001",
	} {
		b, err := json.Marshal(timeutil.Seconds(d))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(b).To(MatchJSON(text))
		var back timeutil.Seconds
		g.Expect(json.Unmarshal(b, &back)).To(Succeed())
		g.Expect(time.Duration(back)).To(Equal(d))
	}
	var s timeutil.Seconds
	g.Expect(json.Unmarshal([]byte("1e300"), &s)).To(MatchError("1e300 seconds is longer than a duration can be"))
	g.Expect(json.Unmarshal([]byte(`"1s"`), &s)).NotTo(Succeed())
}
