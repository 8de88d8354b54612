package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// PutObject stores an object under a unique name, and then has the given name point to it. Only the pointer is fenced: no pointer leads to
// what an older leader stores later.
func PutObject(ctx context.Context, objects jetstream.ObjectStore, pointers *fence.Bucket, t election.Term, name string, data io.Reader) error {
	unique := name + "/" + t.Token() + "/" + nuid.Next()
	if _, err := objects.Put(ctx, jetstream.ObjectMeta{Name: unique}, data); err != nil {
		return err
	}
	_, err := pointers.Put(ctx, name, []byte(unique))
	if errors.Is(err, fence.ErrFenced) { // and of no other error: the pointer may have been set
		err = errors.Join(err, objects.Delete(ctx, unique))
	}
	return err
}

// GetObject returns the object that a name points to. Any process may read.
func GetObject(ctx context.Context, objects jetstream.ObjectStore, pointers jetstream.KeyValue, name string) ([]byte, error) {
	for {
		pointer, err := pointers.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		data, err := objects.GetBytes(ctx, string(pointer.Value()))
		if !errors.Is(err, jetstream.ErrObjectNotFound) {
			return data, err
		}
		if again, err := pointers.Get(ctx, name); err != nil || again.Revision() == pointer.Revision() {
			return nil, fmt.Errorf("%s points to %s, which does not exist: %w", name, pointer.Value(), errors.Join(err, jetstream.ErrObjectNotFound))
		}
	}
}

// SweepObjects deletes the objects that older terms stored for a name, except the one that the name points to. Call it after the bucket of
// pointers was opened: from then on no older leader can change a pointer.
func SweepObjects(ctx context.Context, objects jetstream.ObjectStore, pointers *fence.Bucket, t election.Term, name string) error {
	current := ""
	switch pointer, err := pointers.Get(ctx, name); {
	case err == nil:
		current = string(pointer.Value())
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	all, err := objects.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	for _, o := range all {
		rest, of := strings.CutPrefix(o.Name, name+"/")
		token, _, _ := strings.Cut(rest, "/")
		if !of || o.Name == current || token == t.Token() || newer(t, token) != nil {
			continue // as for newer tokens: what this leader's successor stores is not its own to delete
		}
		if err := objects.Delete(ctx, o.Name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return err
		}
	}
	return nil
}
