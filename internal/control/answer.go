package control

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natscampaign/election/internal/kv"
)

// importedPrefix is what the reply subject of a request begins with that comes from another account, by an import. The server chooses that
// subject, refuses it from clients, and publishes the answer to the caller's own reply subject in the caller's own account.
const importedPrefix = "_R_."

// inboxShape is what follows the prefix of an inbox that a client of nats.go makes.
var inboxShape = regexp.MustCompile(`^[0-9A-Za-z]{22}(\.[0-9A-Za-z]+)?$`)

// answerable reports whether an answer may be published to a reply subject. An answer is published with the permissions of this process,
// but the caller chooses the subject: so it must be an inbox. An answer must never be a write to a key, or a request to JetStream, to
// which an empty body or {} can be a valid request. Below the given inbox prefixes, one of which the caller names, every subject is
// refused that resembles either. api is the prefix of requests to JetStream, which may have any form; empty if it is not known.
func answerable(reply, api string, prefixes ...string) bool {
	if strings.HasPrefix(reply, nats.InboxPrefix) || strings.HasPrefix(reply, importedPrefix) {
		return true
	}
	tokens := strings.Split(reply, ".")
	reserved := func(token string) bool {
		return strings.HasPrefix(token, "$") || strings.HasPrefix(token, "KV_") || token == "API"
	}
	if tokens[0] == "election" || tokens[0] == "election-control" || slices.ContainsFunc(tokens, reserved) ||
		api != "" && strings.Contains("."+reply+".", "."+api+".") {
		return false
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		inbox, ok := strings.CutPrefix(reply, prefix+".")
		return ok && prefix != "" && inboxShape.MatchString(inbox)
	})
}

// answerable reports whether a message may be answered. named is the inbox prefix that its body names.
func (s *service) answerable(m *nats.Msg, named string) bool {
	api := strings.TrimSuffix(kv.APIPrefix(s.bucket.JetStream()), ".")
	return answerable(m.Reply, api, s.bucket.Conn().Opts.InboxPrefix, named)
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
