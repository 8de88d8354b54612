package kv

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

func TestAccountIsComparedWithItsLimitsAsTheServerDoes(t *testing.T) {
	g := NewWithT(t)
	tier := func(store, memory uint64, maxStore, maxMemory int64) jetstream.Tier {
		return jetstream.Tier{Store: store, Memory: memory, Limits: jetstream.AccountLimits{MaxStore: maxStore, MaxMemory: maxMemory, MaxConsumers: 7}}
	}
	flat := &jetstream.AccountInfo{Tier: tier(10, 20, 100, -1)}
	tiered := &jetstream.AccountInfo{Tier: tier(70, 0, 0, 0), Tiers: map[string]jetstream.Tier{"R1": tier(10, 0, 100, 50), "R3": tier(60, 0, 200, 0)}}
	file := func(replicas int) jetstream.StreamConfig { return jetstream.StreamConfig{Replicas: replicas} }
	memory := jetstream.StreamConfig{Replicas: 1, Storage: jetstream.MemoryStorage}
	for _, c := range []struct {
		account *jetstream.AccountInfo
		stream  jetstream.StreamConfig
		want    AccountUse
	}{
		{nil, file(1), AccountUse{Most: -1}},
		{flat, file(0), AccountUse{10, 100, "max_file", "", 7}},
		{flat, file(3), AccountUse{10, 100, "max_file", "", 7}},
		{flat, memory, AccountUse{20, -1, "max_mem", "", 7}},
		{tiered, file(0), AccountUse{10, 100, "max_file", "R1", 7}},
		{tiered, file(3), AccountUse{60, 600, "max_file", "R3", 7}},
		{tiered, memory, AccountUse{0, 50, "max_mem", "R1", 7}},
		{tiered, file(5), AccountUse{Most: -1}},
	} {
		g.Expect(UseOf(c.account, c.stream)).To(Equal(c.want))
	}
}

func TestVersionsOfServersAreComparedAsFarAsTheyAreKnown(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct {
		version string
		known   []int
		order   int
		ok      bool
	}{
		{"2.11.7", []int{2, 11, 7}, 0, true},
		{"2.11.10", []int{2, 11, 7}, 1, true},
		{"2.9.25", []int{2, 11, 7}, -1, true},
		{"3.0.0", []int{2, 11, 7}, 1, true},
		{"2.15.0-RC.1", []int{2, 14, 9}, 1, true},
		{"2.11", []int{2, 11}, 0, true},
		{"2.11", []int{2, 11, 7}, 0, false},
		{"", []int{2, 11}, 0, false},
		{"nonsense", []int{2, 11}, 0, false},
	} {
		order, ok := CompareVersion(c.version, c.known...)
		g.Expect(ok).To(Equal(c.ok), c.version)
		g.Expect(order).To(Equal(c.order), c.version)
	}
}
