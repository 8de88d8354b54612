// Package control is the protocol by which operators and candidates talk to candidates over NATS.
//
// Each process whose candidates know their connection answers requests about them. The subject of a request is
// election-control.<bucket>.<verb>.<key>; the key comes last because it may have dots. Permission to publish to a subject can so be
// permission for one election, or for one thing. All processes of a bucket receive each request, and those answer that it concerns:
//
//	candidates   every process describes its candidates; one that a leader is about to release the key to reads the key soon
//	resign       the process of the leader answers when it begins, with how long it may take, and again when the key is released
//	transfer     likewise, when the target leads
//	refresh      every process reads the bucket's info again, and answers when it has: an election was paused or resumed
//
// A request can only cost work, or move leadership in order. Its body is JSON. resign and transfer name the leader by the instance of its
// record, as in {"instance":"eVhDX8S4IyLVDr6kfJk3DI"}, so that a late request moves no other leader. Before a transfer the leader asks for
// candidates with {"to":"web-2","release_ms":110}: the key will be released after 110 ms, at most 1,000.
//
// Answers have a subject of their own, election-answers.<bucket>.<id>.<key>, whose id the caller makes up. So whoever answers operators needs
// permission to publish there, and neither to the inboxes of a connection, which receive what the server answers, nor to any reply subject. A
// process answers there, in inboxes, and nowhere else; see [answerable]. What the server or a stream puts on a control subject is no request;
// see [isRequest].
//
//	control.go   the protocol: subjects, bodies and errors
//	member.go    a candidate that takes part; service.go answers for all of them in a process
//	requests.go  what is a request, and what each does
//	answer.go    where an answer may go
//	stats.go     what nats micro asks
//	client.go    sends requests; operator.go names the operator for whom it does
package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natscampaign/election/internal/validate"
)

// Errors that travel from one process to another.
var (
	ErrNotLeader   = errors.New("not the leader")
	ErrNoCandidate = errors.New("no candidate")
)

// ErrUnderWay is the error of a handover that has begun, and whose end was not waited for.
var ErrUnderWay = errors.New("the leader hands over, and goes on with it")

// ErrNoAnswer is the error of a handover for which the leader was asked in vain. Such a leader is cut off, or hangs, or cannot be asked at all.
var ErrNoAnswer = errors.New("the leader does not answer")

// The verbs.
const (
	verbCandidates = "candidates"
	verbResign     = "resign"
	verbTransfer   = "transfer"
	verbRefresh    = "refresh"
)

// Candidate is how a candidate describes itself.
type Candidate struct {
	Key      string    `json:"key"`
	Name     string    `json:"name"`
	Instance string    `json:"instance"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Priority int       `json:"priority,omitempty"`
	State    string    `json:"state"`
	Ready    bool      `json:"ready"`             // it would be notified of a vacancy now, and answer it; its last write did not fail
	Standby  *bool     `json:"standby,omitempty"` // it would take over; nil where that says nothing about the election
	Version  string    `json:"version"`
	Clock    time.Time `json:"clock,omitzero"` // its clock when it answered

	LastError   string    `json:"last_error,omitempty"`   // of its requests, until one of that kind succeeds; see CutError
	LastErrorAt time.Time `json:"last_error_at,omitzero"` // by the same clock

	// The connection of its process, as the server calls it. All else about a copy of a process is that of the process, as of a virtual machine
	// that was cloned; but a server gives each connection a number of its own. Connection is for people.
	Connection string `json:"connection,omitempty"`
	ServerID   string `json:"server_id,omitempty"`
}

// maxErrorBytes is how much of an error a candidate reports.
const maxErrorBytes = 1 << 10

// CutError cuts the text of an error to what a candidate reports of it, at the end of a word.
func CutError(text string) string {
	const more = " …"
	if len(text) <= maxErrorBytes {
		return text
	}
	cut := strings.ToValidUTF8(text[:maxErrorBytes-len(more)], "")
	if i := strings.LastIndexByte(cut, ' '); i > 0 {
		cut = cut[:i]
	}
	return cut + more
}

// maxRequestBytes bounds a request, with its subjects and headers. The largest that this package makes has some 2,800 bytes: JSON makes six
// bytes of one at worst, and a name has 255.
const maxRequestBytes = 4 << 10

// request is the body of a request. All of it may be missing, but for the instance of a leader that is to hand over.
type request struct {
	Bucket   time.Time `json:"bucket,omitzero"`    // when the bucket was created: others of its name may be within reach
	Instance string    `json:"instance,omitempty"` // the candidate that is asked, and no other
	To       string    `json:"to,omitempty"`       // the candidate that is to take over, by its name or instance
	WaitMs   int64     `json:"wait_ms,omitempty"`  // how long the caller waits for the second answer

	// After how long the leader will have released the key to the candidate To, if that one is ready. It is a hint.
	ReleaseMs int64 `json:"release_ms,omitempty"`
}

// answer is the body of an answer. Errors are in headers, as those of any NATS micro service.
type answer struct {
	Candidates []Candidate `json:"candidates,omitempty"`
	Begun      bool        `json:"begun,omitempty"`     // the handover goes on; another answer follows when it is done, or when the caller's time is over
	WithinMs   int64       `json:"within_ms,omitempty"` // how long a handover that has begun may take
	Done       bool        `json:"done,omitempty"`      // what was asked for is done
}

// Subject returns the subject of a request about a key.
func Subject(bucket, verb, key string) string {
	return "election-control." + bucket + "." + verb + "." + key
}

// AnswerSubject returns the subject of the answers to one request about a key, or to all requests if the id is "*". The key comes last
// because it may have dots. An id that nobody can guess keeps others from answering.
func AnswerSubject(bucket, id, key string) string {
	return "election-answers." + bucket + "." + id + "." + key
}

// parseSubject returns the verb and the key of a control subject of the bucket. It is not ok for any other subject: what a consumer delivers
// to a control subject has the subject that it is stored under.
func parseSubject(bucket, of string) (verb, key string, ok bool) {
	rest, ours := strings.CutPrefix(of, "election-control."+bucket+".")
	verb, key, ok = strings.Cut(rest, ".")
	return verb, key, ours && ok
}

// remoteError is an error that another process answered.
type remoteError struct {
	text string
	kind error // nil if the code names none
}

func (r *remoteError) Error() string { return r.text }
func (r *remoteError) Unwrap() error { return r.kind }

const codeFailed = 500

// codes are the errors that keep their identity across processes.
var codes = map[int]error{400: validate.ErrInvalidOption, 404: ErrNoCandidate, 409: ErrNotLeader}

// The answers to requests that are not carried out.
var (
	errTooLarge    = validate.Errorf("the request is too large: send at most %d bytes, with its subjects and headers", maxRequestBytes)
	errInvalidBody = validate.Errorf("%s", `the body cannot be read: send none, or a JSON object such as {"instance":"LEADER'S INSTANCE"}`)
	errNoInstance  = validate.Errorf("%s", `the request does not say which leader is to hand over: send {"instance":"LEADER'S INSTANCE"}; it is part of the record under the key`)
)

// codeOf returns the code by which err is sent to another process.
func codeOf(err error) int {
	for code, kind := range codes {
		if errors.Is(err, kind) {
			return code
		}
	}
	return codeFailed
}

// parse reads an answer.
func (a *answer) parse(m *nats.Msg) error {
	if text := m.Header.Get(micro.ErrorHeader); text != "" {
		code, _ := strconv.Atoi(m.Header.Get(micro.ErrorCodeHeader))
		return &remoteError{text: text, kind: codes[code]}
	}
	if err := json.Unmarshal(m.Data, a); err != nil {
		return fmt.Errorf("an answer cannot be read: %w", err)
	}
	return nil
}
