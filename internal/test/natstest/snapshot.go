package natstest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/kv"
)

// Snapshot is a copy of a bucket that the server has made, as 'nats stream backup' makes one.
type Snapshot struct {
	bucket string
	stream struct { // what the restore asks for
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	chunks [][]byte
}

// TakeSnapshot has the server copy a bucket that is stored in files.
func TakeSnapshot(t testing.TB, nc *nats.Conn, bucket string) *Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	deliver := nats.NewInbox()
	delivered, err := nc.SubscribeSync(deliver)
	if err != nil {
		t.Fatalf("natstest: snapshot: %v", err)
	}
	defer func() { _ = delivered.Unsubscribe() }()
	s := &Snapshot{bucket: bucket}
	if err := ask(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+kv.StreamName(bucket), fmt.Appendf(nil, `{"deliver_subject":%q,"no_consumers":true}`, deliver), &s.stream); err != nil {
		t.Fatalf("natstest: snapshot: %v", err)
	}
	for {
		m, err := delivered.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("natstest: snapshot: %v", err)
		}
		if len(m.Data) == 0 { // the end
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				t.Fatalf("natstest: snapshot: %s %s", status, m.Header.Get("Description"))
			}
			return s
		}
		s.chunks = append(s.chunks, m.Data)
		if m.Reply != "" {
			_ = m.Respond(nil)
		}
	}
}

// Restore deletes the bucket, and has the server make it again from the snapshot.
func (s *Snapshot) Restore(t testing.TB, nc *nats.Conn) {
	t.Helper()
	stream := kv.StreamName(s.bucket)
	ctx, cancel := context.WithTimeout(t.Context(), clusterPatience)
	defer cancel()
	for {
		_ = ask(ctx, nc, "$JS.API.STREAM.DELETE."+stream, nil, nil) // there is none after a try that failed
		err := s.upload(ctx, nc)
		if err == nil {
			break
		}
		select { // a server that has just lost its last stream may refuse the next one
		case <-ctx.Done():
			t.Fatalf("natstest: restore: %v", err)
		case <-time.After(pollInterval):
		}
	}
	poll(t, clusterPatience, "leader of a restored stream", func(ctx context.Context) error {
		return ask(ctx, nc, "$JS.API.STREAM.INFO."+stream, nil, nil)
	})
}

// upload has the server make a bucket that does not exist.
func (s *Snapshot) upload(ctx context.Context, nc *nats.Conn) error {
	request, err := json.Marshal(s.stream)
	if err != nil {
		return err
	}
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	if err := ask(ctx, nc, "$JS.API.STREAM.RESTORE."+kv.StreamName(s.bucket), request, &to); err != nil {
		return err
	}
	for _, chunk := range append(slices.Clip(s.chunks), nil) { // an empty one ends it
		if err := ask(ctx, nc, to.Subject, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// ask makes a request to the JetStream API, and parses the answer into parsed unless that is nil.
func ask(ctx context.Context, nc *nats.Conn, subject string, request []byte, parsed any) error {
	m, err := nc.RequestWithContext(ctx, subject, request)
	if err != nil || len(m.Data) == 0 {
		return err
	}
	var refused struct {
		Error *struct{ Description string }
	}
	if err := json.Unmarshal(m.Data, &refused); err != nil {
		return err
	}
	if refused.Error != nil {
		return fmt.Errorf("%s: %s", subject, refused.Error.Description)
	}
	if parsed == nil {
		return nil
	}
	return json.Unmarshal(m.Data, parsed)
}

// BackUp copies all files of the server, which must be stopped, and returns what puts the copy in their place, again while it is stopped.
func (s *Server) BackUp(t testing.TB) (restore func()) {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(s.opts.StoreDir)); err != nil {
		t.Fatalf("natstest: server %s: %v", s.Name(), err)
	}
	return func() {
		t.Helper()
		if s.isRunning() {
			t.Fatalf("natstest: server %s is running", s.Name())
		}
		err := os.RemoveAll(s.opts.StoreDir)
		if err == nil {
			err = os.CopyFS(s.opts.StoreDir, os.DirFS(folder))
		}
		if err != nil {
			t.Fatalf("natstest: server %s: %v", s.Name(), err)
		}
	}
}
