package record

import (
	"encoding/json"

	"github.com/natscampaign/election/internal/validate"
)

// Eviction is the value of a deletion by which an operator evicts a leader. Clients that delete a key by other means write no value.
type Eviction struct {
	By   string `json:"evicted_by"`     // the operator, as it calls itself
	Name string `json:"name,omitempty"` // the leader that was evicted, and its term
	Term uint64 `json:"term,omitempty"`
}

// Encode returns the bytes of the eviction.
func (e Eviction) Encode() []byte {
	b, err := json.Marshal(e)
	if err != nil { // text always encodes
		panic("election: eviction does not encode: " + err.Error())
	}
	return b
}

// ParseEviction reads the value of a deletion. The result is empty unless the value is an eviction of a plausible size.
func ParseEviction(value []byte) (e Eviction) {
	if len(value) > MaxBytes || json.Unmarshal(value, &e) != nil || len(e.By) > validate.MaxNameBytes || len(e.Name) > validate.MaxNameBytes {
		return Eviction{}
	}
	return e
}
