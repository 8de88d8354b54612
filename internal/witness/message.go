package witness

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/natscampaign/election/internal/record"
)

// maxMessageBytes bounds a message. What is longer ends the connection.
const maxMessageBytes = 8 << 10

// message is one line from the program to its witness: which process the program is, a term that has begun, or the commitment of one that is over.
type message struct {
	Hello *hello             `json:"hello,omitempty"`
	Began *Term              `json:"began,omitempty"`
	Over  *record.Commitment `json:"over,omitempty"`
}

// hello is the first message to the witness of a host. Descriptors that come with it identify the process, or what it says where the system has none.
type hello struct {
	PID     int   `json:"pid,omitempty"`
	Started int64 `json:"started,omitempty"` // in microseconds
}

// answer is one line from the witness of a host to a program: that the witness watches the program, or why it does not, or why it has left a term to
// its lease.
type answer struct {
	Refused string `json:"refused,omitempty"`
}

var (
	errNoHello   = errors.New("the program does not say which process it is: let program and witness have the same version")
	errNoProcess = errors.New("what connected is not the process that leads: connect the program to the socket of the witness itself, without a relay such as socat, ssh -R or a proxy")
)

// parseHello returns what a program says of its process. Nothing may follow: the program waits for the answer.
func parseHello(text []byte) (h hello, ok bool) {
	line, rest, whole := bytes.Cut(text, []byte("\n"))
	var m message
	if !whole || len(rest) > 0 || json.Unmarshal(line, &m) != nil || m.Hello == nil {
		return h, false
	}
	return *m.Hello, true
}

// encode returns a message or an answer as a line.
func encode(m any) ([]byte, error) {
	line, err := json.Marshal(m)
	return append(line, '\n'), err
}
