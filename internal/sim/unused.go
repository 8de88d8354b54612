package sim

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// unused has the methods of a bucket that the library does not call, so that it shows when it does.
type unused struct{}

func (unused) missing(method string) {
	panic("sim: the library calls " + method + ", which the simulated bucket does not have yet")
}

func (u unused) GetRevision(context.Context, string, uint64) (jetstream.KeyValueEntry, error) {
	u.missing("GetRevision")
	return nil, nil
}

func (u unused) Put(context.Context, string, []byte) (uint64, error) {
	u.missing("Put")
	return 0, nil
}

func (u unused) PutString(context.Context, string, string) (uint64, error) {
	u.missing("PutString")
	return 0, nil
}

func (u unused) Purge(context.Context, string, ...jetstream.KVDeleteOpt) error {
	u.missing("Purge")
	return nil
}

func (u unused) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	u.missing("WatchAll")
	return nil, nil
}

func (u unused) WatchFiltered(context.Context, []string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	u.missing("WatchFiltered")
	return nil, nil
}

func (u unused) Keys(context.Context, ...jetstream.WatchOpt) ([]string, error) {
	u.missing("Keys")
	return nil, nil
}

func (u unused) ListKeys(context.Context, ...jetstream.WatchOpt) (jetstream.KeyLister, error) {
	u.missing("ListKeys")
	return nil, nil
}

func (u unused) ListKeysFiltered(context.Context, ...string) (jetstream.KeyLister, error) {
	u.missing("ListKeysFiltered")
	return nil, nil
}

func (u unused) History(context.Context, string, ...jetstream.WatchOpt) ([]jetstream.KeyValueEntry, error) {
	u.missing("History")
	return nil, nil
}

func (u unused) PurgeDeletes(context.Context, ...jetstream.KVPurgeOpt) error {
	u.missing("PurgeDeletes")
	return nil
}

// status is what the library reads of the bucket's state. The embedded interface is nil: any other method panics.
type status struct {
	jetstream.KeyValueStatus
	info *jetstream.StreamInfo
}

func (s *status) Bucket() string                    { return "ELECTIONS" }
func (s *status) TTL() time.Duration                { return s.info.Config.MaxAge }
func (s *status) History() int64                    { return s.info.Config.MaxMsgsPerSubject }
func (s *status) LimitMarkerTTL() time.Duration     { return s.info.Config.SubjectDeleteMarkerTTL }
func (s *status) StreamInfo() *jetstream.StreamInfo { return s.info }
