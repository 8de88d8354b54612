package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Every process with candidates that were given [WithJetStream] answers questions about them, and takes requests for the
// leader among them. All processes of a bucket hear each question, and those answer whom it concerns.

// What is asked, the third token of the subject election-control.<bucket>.<verb>.<key>. The key comes last, for it may have
// dots: so permission to publish to a subject can be that for one election.
const (
	verbCandidates = "candidates" // every process answers for its candidates
	verbResign     = "resign"     // the process with the leader answers, twice: when it begins, and when it is done
	verbTransfer   = "transfer"   // likewise
	verbLook       = "look"       // every process reads which elections are paused, and answers when it has
)

const (
	// askPatience is how long the first answer to a question is waited for.
	askPatience = time.Second
	// askQuiet is for how long no further answer must have come until the last is thought to be in.
	askQuiet = 150 * time.Millisecond
	// askLimit is how long answers are taken in any case.
	askLimit = 5 * time.Second
	// askRefusalSpacing is how long to wait at most until it is found out again whether a question was refused.
	askRefusalSpacing = 20 * time.Millisecond
)

func controlSubject(bucket, verb, key string) string {
	return "election-control." + bucket + "." + verb + "." + key
}

// question is what is sent to all processes. All of the body may be missing.
type question struct {
	Key      string    `json:"-"`                  // the election that is meant: the subject names it
	Bucket   time.Time `json:"bucket,omitzero"`    // when it was created: there may be others of its name within reach
	Instance string    `json:"instance,omitempty"` // the candidate that is asked, and no other
	To       string    `json:"to,omitempty"`       // who is to take over
	WaitMs   int64     `json:"wait_ms,omitempty"`  // how long the asker waits for what was begun

	// InboxPrefix is that of the asker's connection, if it is not the default: answers may go there. See answerable.
	InboxPrefix string `json:"inbox_prefix,omitempty"`
}

// answer is what a process replies. What went wrong stands in headers, as it does for any NATS micro service.
type answer struct {
	Candidates []Candidate `json:"candidates,omitempty"`
	Begun      bool        `json:"begun,omitempty"` // the leader winds up; another answer follows when it is done, or the asker's time is over
}

// Codes of what went wrong.
const (
	codeBad         = 400
	codeNoCandidate = 404
	codeNotLeader   = 409
	codeFailed      = 500
)

// rejection is an error that another process answered.
type rejection struct {
	text string
	kind error // one of this package's, or nil
}

func (r *rejection) Error() string { return r.text }
func (r *rejection) Unwrap() error { return r.kind }

// codeOf returns the code by which err is told to another process.
func codeOf(err error) int {
	switch {
	case errors.Is(err, ErrInvalidOption):
		return codeBad
	case errors.Is(err, ErrNoCandidate):
		return codeNoCandidate
	case errors.Is(err, ErrNotLeader):
		return codeNotLeader
	}
	return codeFailed
}

// kindOf returns the error that a code stands for.
func kindOf(code int) error {
	return map[int]error{codeBad: ErrInvalidOption, codeNoCandidate: ErrNoCandidate, codeNotLeader: ErrNotLeader}[code]
}

// read returns what a message says that answers a question.
func (a *answer) read(m *nats.Msg) error {
	if text := m.Header.Get(micro.ErrorHeader); text != "" {
		code, _ := strconv.Atoi(m.Header.Get(micro.ErrorCodeHeader))
		return &rejection{text: text, kind: kindOf(code)}
	}
	if err := json.Unmarshal(m.Data, a); err != nil {
		return fmt.Errorf("an answer cannot be read: %w", err)
	}
	return nil
}

// ask puts a question to all processes that have candidates in elections of the bucket, and passes their answers on until
// each says that it has heard enough, or no more come. What each returns says how long to wait for another answer: not at
// all if it is 0. The error is nats.ErrNoResponders if there is no such process, and a nats.ErrPermissionViolation if the
// question may not be asked.
func ask(ctx context.Context, nc *nats.Conn, bucket, verb string, q question, each func(*nats.Msg) time.Duration) error {
	q.InboxPrefix = nc.Opts.InboxPrefix
	inbox := nc.NewInbox()
	if !answerable(inbox, "", q.InboxPrefix) {
		return invalid("candidates do not answer below the inbox prefix %q of the connection: use one whose tokens are neither API nor begin with $ or KV_, and that is not below election or election-control", q.InboxPrefix)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	subject := controlSubject(bucket, verb, q.Key)
	began, before := time.Now(), nc.LastError()
	if err := nc.PublishRequest(subject, inbox, text); err != nil {
		return err
	}
	if err := refusedToAsk(ctx, nc, before, subject); err != nil {
		return fmt.Errorf("asking candidates is not permitted: permit to publish to %s: %w", subject, err)
	}
	for wait := time.Until(began.Add(askPatience)); wait > 0; {
		if verb == verbCandidates || verb == verbLook {
			wait = min(wait, time.Until(began.Add(askLimit)))
		}
		patient, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(patient)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return err
		case len(m.Data) == 0 && m.Header.Get("Status") == "503":
			return nats.ErrNoResponders
		}
		wait = each(m)
	}
	return nil
}

// refusedToAsk returns the server's refusal of a message that was published to a control subject, if there is one; see
// refusedSince. While that is unclear, as when several are refused at once, messages are sent to that subject that do nothing: their
// body cannot be read, and there is no reply subject.
func refusedToAsk(ctx context.Context, nc *nats.Conn, before error, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience/2)
	defer cancel()
	what := fmt.Sprintf("Publish to %q", subject)
	unclear, err := refusedSince(ctx, nc, before, what)
	for unclear && pause(ctx, randomBelow(askRefusalSpacing)) {
		before = nc.LastError()
		if nc.Publish(subject, []byte("?")) != nil {
			return nil
		}
		unclear, err = refusedSince(ctx, nc, before, what)
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// askCandidates has each candidate of a key told to found, with the time at which its answer came, until that says that it
// has heard enough, or none has answered for a while; answers are waited for at least as long as is given.
func askCandidates(ctx context.Context, nc *nats.Conn, bucket string, q question, least time.Duration, found func(Candidate, time.Time) (enough bool)) error {
	began := time.Now()
	return ask(ctx, nc, bucket, verbCandidates, q, func(m *nats.Msg) time.Duration {
		came := time.Now()
		quiet := max(askQuiet, time.Until(began.Add(least)))
		var a answer
		if a.read(m) != nil {
			return quiet // that one cannot be understood; others may
		}
		for _, c := range a.Candidates {
			if found(c, came) {
				return 0
			}
		}
		return quiet
	})
}

// meet has each other candidate of the key told to found until that says that it has heard enough: first those in this
// process, whose own questions a connection may not echo, and then all, who may be further away than the first that
// answers. One may be told twice.
func (a *ear) meet(ctx context.Context, found func(Candidate) (enough bool)) error {
	for _, other := range a.hub.listeners(a.key) {
		if found(other.election.candidate()) {
			return nil
		}
	}
	return askCandidates(ctx, a.hub.conn, a.hub.bucket.Bucket(), a.hub.question(a.key), askPatience, func(c Candidate, _ time.Time) bool { return found(c) })
}

// question returns one about a key of the bucket as it is known by now.
func (h *hub) question(key string) question { return question{Key: key, Bucket: *h.created.Load()} }

// askLeader has the leader that is meant do something, and returns when it is done. An error that wraps ctx's means that
// ctx ended before; the leader may have heard all the same.
func askLeader(ctx context.Context, nc *nats.Conn, bucket, verb string, q question, patience time.Duration) error {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ends, _ := limit.Deadline()
	q.WaitMs = time.Until(ends).Milliseconds()
	err, begun, done := error(nil), false, false
	failed := ask(limit, nc, bucket, verb, q, func(m *nats.Msg) time.Duration {
		var a answer
		if err = a.read(m); err == nil && a.Begun {
			begun = true
			return 2 * patience // limit ends before that, and tells whether it was ctx that did
		}
		done = true
		return 0
	})
	switch {
	case done:
		return err
	case begun && ctx.Err() != nil:
		return fmt.Errorf("the leader winds up, and goes on: %w", ctx.Err())
	case begun:
		return errors.New("the leader winds up, but was not done in time; it goes on")
	case failed != nil && !errors.Is(failed, nats.ErrNoResponders):
		return failed
	}
	return errors.New("the leader does not answer: it is cut off, or was not given WithJetStream; evict it, if need be")
}
