package kv

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// toInspectAccount returns the permission to read what the account of the bucket stores, and its limits.
func (b *Bucket) toInspectAccount() Permission {
	return Permission{b.api() + "INFO", []string{b.api() + "INFO", "API.INFO"}}
}

// Account asks the server what the account stores, and for its limits. It ends as soon as the server refuses that. The bucket must know its
// connection.
func (b *Bucket) Account(ctx context.Context) (account *jetstream.AccountInfo, err error) {
	err = UntilRefused(ctx, b.Conn(), b.toInspectAccount(), func(ctx context.Context) (err error) {
		account, err = b.js.AccountInfo(ctx)
		return err
	})
	return account, err
}

// AccountUse is what an account stores of the kind that a stream is kept in, and its limits for that stream.
type AccountUse struct {
	Used, Most int64  // bytes, of all replicas; Most is negative if there is no limit
	Limit      string // what the configuration of a server calls that limit
	Tier       string // of the number of replicas that the limit is for; empty for all
	Consumers  int    // the most of one stream; 0 or less if there is no limit
}

// UseOf returns what an account stores, and its limits, as the server compares them when the stream is written. No account, nil, has no limits.
func UseOf(account *jetstream.AccountInfo, stream jetstream.StreamConfig) AccountUse {
	if account == nil {
		return AccountUse{Most: -1}
	}
	tier, name, times := account.Tier, "", int64(1)
	if replicas := max(stream.Replicas, 1); len(account.Tiers) > 0 { // each tier has limits of its own, for one replica
		name = fmt.Sprintf("R%d", replicas)
		of, limited := account.Tiers[name]
		if !limited {
			return AccountUse{Most: -1}
		}
		tier, times = of, int64(replicas)
	}
	u := AccountUse{Used: int64(tier.Store), Most: tier.Limits.MaxStore, Limit: "max_file", Tier: name, Consumers: tier.Limits.MaxConsumers}
	if stream.Storage == jetstream.MemoryStorage {
		u.Used, u.Most, u.Limit = int64(tier.Memory), tier.Limits.MaxMemory, "max_mem"
	}
	u.Most *= times
	return u
}

// messageBytes is what a server counts of a message beside its subject, headers and data.
const messageBytes = 34

// StoredBytes returns what a write of the given size, with its headers, takes of what the account may store.
func (b *Bucket) StoredBytes(key string, size int64, stream jetstream.StreamConfig) int64 {
	return (size + messageBytes + int64(len(b.Subject(key)))) * int64(max(stream.Replicas, 1))
}
