package witness

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
)

// errForeign is wrapped by the error of a bucket in which a witness writes nothing.
var errForeign = errors.New("the witness writes nothing there")

func isForeign(err error) bool { return errors.Is(err, errForeign) }

// checkOwn returns an error unless a stream stores exactly what is written to the keys of a bucket. Otherwise the record that a witness reads would
// not be what its release is written over: somebody who may make streams would have the witness write where he himself may not.
func checkOwn(bucket string, info *jetstream.StreamInfo) error {
	problem := ""
	switch {
	case info == nil:
		problem = "is not described by its server"
	case info.Config.Name != kv.StreamName(bucket):
		problem = fmt.Sprintf("is the stream %q", info.Config.Name)
	case len(info.Config.Subjects) != 1 || info.Config.Subjects[0] != kv.Subject(bucket, ">"):
		problem = fmt.Sprintf("stores the subjects %q", info.Config.Subjects)
	case info.Config.Mirror != nil:
		problem = fmt.Sprintf("mirrors the stream %q", info.Config.Mirror.Name)
	case len(info.Config.Sources) > 0:
		problem = fmt.Sprintf("copies the stream %q", info.Config.Sources[0].Name)
	case info.Config.SubjectTransform != nil:
		problem = fmt.Sprintf("stores what is written under other subjects, %q", info.Config.SubjectTransform.Destination)
	case info.Config.RePublish != nil && reachesStore(info.Config.RePublish.Destination):
		problem = fmt.Sprintf("repeats what is written on %q", info.Config.RePublish.Destination)
	default:
		return nil
	}
	return fmt.Errorf("the stream of the bucket %q %s, and a bucket for elections stores the subjects %q and nothing else: stop all candidates, remove the bucket with election-cli bucket rm, and make it with election-cli bucket add: %w",
		bucket, problem, kv.Subject(bucket, ">"), errForeign)
}

// reachesStore reports whether a subject may be one of a bucket or of the JetStream API. A subject that begins with a wildcard may.
func reachesStore(subject string) bool {
	return subject == "" || strings.ContainsAny(subject[:1], "$*>{")
}
