package fence

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// demand is what every write demands of the server: that the record has this sequence.
type demand struct {
	sequence uint64
	header   nats.Header // states the demand; shared, and never changed
	stream   []string    // the stream that the demand names, if it does
}

func (e *epoch) demandOf(sequence uint64) *demand {
	return &demand{sequence: sequence, header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(sequence, 10)},
		jetstream.ExpectedLastSubjSeqSubjHeader: {e.subject},
	}}
}

// naming returns the demand with that for the stream as well. It costs every write a little, and is needed only where another stream might
// store the message.
func (d *demand) naming(stream string) *demand {
	header := maps.Clone(d.header)
	header[jetstream.ExpectedStreamHeader] = []string{stream}
	return &demand{d.sequence, header, []string{stream}}
}

// fenced returns a copy of m that makes the demand, unless m makes one of its own. Data, and values of headers, are shared.
func (d *demand) fenced(m *nats.Msg) *nats.Msg {
	copied := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: d.header, Data: m.Data}
	switch {
	case len(m.Header) == 0:
	case !demands(m):
		copied.Header = maps.Clone(m.Header)
		maps.Copy(copied.Header, d.header)
	default:
		copied.Header = maps.Clone(m.Header)
		if d.stream != nil {
			copied.Header[jetstream.ExpectedStreamHeader] = d.stream
		}
	}
	return copied
}

// has reports whether a message has a header, whatever its value.
func has(m *nats.Msg, header string) bool { return len(m.Header[header]) > 0 }

// valueOf returns the value of a header as servers read it: the first, without the space around it.
func valueOf(m *nats.Msg, header string) string { return strings.TrimSpace(m.Header[header][0]) }

// demands reports whether a message itself makes the one demand for a last sequence of a subject that a message can make.
func demands(m *nats.Msg) bool { return has(m, jetstream.ExpectedLastSubjSeqHeader) }

// expects reports whether a message may be refused for another reason than the epoch, in the same words.
func expects(m *nats.Msg) bool { return demands(m) || has(m, jetstream.ExpectedLastSeqHeader) }

// demanded returns the subject of which a message demands the last sequence.
func demanded(m *nats.Msg) string {
	if has(m, jetstream.ExpectedLastSubjSeqSubjHeader) {
		return valueOf(m, jetstream.ExpectedLastSubjSeqSubjHeader)
	}
	return m.Subject
}

// validate returns why a message cannot be published for the epoch.
func (e *epoch) validate(m *nats.Msg) error {
	switch {
	case m == nil:
		return errors.New("no message given")
	case m.Subject == e.subject:
		return fmt.Errorf("%q is the subject of the epochs, and only opening the stream writes it: publish to another", m.Subject)
	case has(m, jetstream.ScheduleTargetHeader) && valueOf(m, jetstream.ScheduleTargetHeader) == e.subject:
		return fmt.Errorf("the message to %q has %s %q, which is the subject of the epochs: name another", m.Subject, jetstream.ScheduleTargetHeader, e.subject)
	case has(m, jetstream.MsgRollup) && strings.EqualFold(valueOf(m, jetstream.MsgRollup), jetstream.MsgRollupAll):
		return fmt.Errorf("the message to %q would purge the stream (%s: %s) and the epoch with it: purge the stream without the handle, or roll up the subject alone", m.Subject, jetstream.MsgRollup, jetstream.MsgRollupAll)
	case has(m, jetstream.ExpectedLastSubjSeqSubjHeader) && !demands(m):
		return fmt.Errorf("the message to %q names a subject (%s) and no last sequence of it: add %s", m.Subject, jetstream.ExpectedLastSubjSeqSubjHeader, jetstream.ExpectedLastSubjSeqHeader)
	}
	return nil
}

// validateBatch returns why messages cannot be published for the epoch as one.
func (e *epoch) validateBatch(msgs []*nats.Msg) error {
	used, free := map[string]bool{e.subject: true}, false // used: subjects of which no last sequence can be demanded any more
	for i, m := range msgs {
		if err := e.validate(m); err != nil {
			return err
		}
		if !demands(m) {
			free = true
		} else if used[demanded(m)] {
			return fmt.Errorf("message %d of %d demands the last sequence of %q, which another message of the batch demands or has changed: demand it once, and first", i+1, len(msgs), demanded(m))
		} else {
			used[demanded(m)] = true
		}
		used[m.Subject] = true
	}
	if !free {
		return fmt.Errorf("all %d messages demand a last sequence of their subjects (%s), and none is left to make that of the epoch: add one", len(msgs), jetstream.ExpectedLastSubjSeqHeader)
	}
	return nil
}
