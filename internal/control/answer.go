package control

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// inboxes is what the reply subject of a request begins with that may be answered wherever it came from: an inbox, as of nats micro, with the
// default prefix or one like _INBOX_ops; and what a server makes of the reply subject of a request from another account. The server refuses
// the latter from clients, and publishes the answer to the caller's own reply subject in the caller's own account.
var inboxes = regexp.MustCompile(`^(_INBOX[^.]*|_R_)\..`)

// answerable reports whether an answer to a request about a key may be published to a reply subject; the key is empty if the request is about
// none. An answer is published with the permissions of this process, but the caller chooses the subject. An answer must never be a write to
// a key, or a request to JetStream, to which an empty body or {} can be a valid request.
func answerable(reply, bucket, key string) bool {
	if inboxes.MatchString(reply) {
		return true
	}
	rest, ours := strings.CutPrefix(reply, "election-answers."+bucket+".")
	id, of, _ := strings.Cut(rest, ".")
	return ours && id != "" && key != "" && of == key
}

// reply answers a request. A caller that does not receive the answer asks again.
func reply(m *nats.Msg, v any) {
	if body, err := json.Marshal(v); err == nil {
		_ = m.Respond(body)
	}
}

// reject answers a request with an error, as micro services do.
func reject(m *nats.Msg, code int, text string) {
	r := nats.NewMsg(m.Reply)
	r.Header.Set(micro.ErrorHeader, strings.Join(strings.Fields(text), " ")) // a header is one line
	r.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(code))
	_ = m.RespondMsg(r)
}
