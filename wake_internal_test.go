package election

import (
	"testing"
	"time"
)

func TestElectionsOfAProcessThatReadTheirKeysAfterAReconnectStillCampaignApart(t *testing.T) {
	held := change{revision: 7, written: time.Now(), record: record{Name: "a", Instance: "a1", Attempt: "a1.1"}}
	a := &ear{ttl: 10 * time.Second, news: make(chan struct{}, 1)}
	a.hear(held)
	a.doubt(1000 * time.Hour)
	apart := a.patient
	a.replay(held)
	overdue := time.Now().Add(-time.Hour)
	if at, vacancy := a.next(overdue, overdue, "b1", true); !at.Equal(apart) || vacancy != nil {
		t.Errorf("campaigns at %v over %v, not at %v", at, vacancy, apart)
	}
}
