package faultproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Message is a message that a client publishes (PUB, HPUB), or that a server delivers
// to it (MSG, HMSG). It may be kept, but its bytes must not be changed.
type Message struct {
	Subject string
	Reply   string
	Header  []byte // with its NATS/1.0 line; nil if there is none
	Payload []byte

	// Request is, for an answer, the subject that the request was sent to, and empty
	// for any other message. An acknowledged write to a KV key is known by its
	// subject $KV.<bucket>.<key>, for instance.
	Request string
}

// frame is a protocol line with its payload, if any, or some bytes of an unknown protocol.
type frame struct {
	bytes   []byte
	message *Message // of a PUB, HPUB, MSG or HMSG
}

const (
	maxLine    = 1 << 20  // longer lines than any INFO are not NATS
	maxPayload = 64 << 20 // what a server can be configured for at most
	chunkSize  = 32 << 10 // how much of an unknown protocol is passed at a time
)

// verbs are all that may start a line between a client and a server.
var verbs = []string{"INFO", "CONNECT", "PING", "PONG", "PUB", "HPUB", "SUB", "UNSUB", "MSG", "HMSG", "+OK", "-ERR"}

// frames splits what arrives on a connection. It never waits for more bytes than the
// frame at hand needs, nor for any once the bytes cannot be NATS protocol.
type frames struct {
	in  *bufio.Reader
	raw bool // another protocol: for good, since a TLS record may look like anything
}

func newFrames(c net.Conn) *frames {
	return &frames{in: bufio.NewReaderSize(c, chunkSize)}
}

// next returns the next frame. With an error it returns the bytes that came before it.
func (f *frames) next() (frame, error) {
	if f.raw {
		return f.chunk()
	}
	line, ok, err := f.line()
	if err != nil || !ok {
		f.raw = true
		return frame{bytes: line}, err
	}
	shape, ok := parse(line)
	switch {
	case !ok:
		f.raw = true
		return frame{bytes: line}, nil
	case !shape.message:
		return frame{bytes: line}, nil
	}
	return f.message(line, shape)
}

// line reads up to the end of a line. It is not ok, and may be part of a line, as soon
// as it cannot be NATS protocol.
func (f *frames) line() (line []byte, ok bool, err error) {
	inVerb := true
	for len(line) < maxLine {
		b, err := f.in.ReadByte()
		if err != nil {
			return line, false, err
		}
		line = append(line, b)
		switch {
		case b == '\n':
			return line, true, nil
		case b == ' ' || b == '\t' || b == '\r':
			inVerb = false
		case inVerb && !startsVerb(string(line)):
			return line, false, nil
		}
	}
	return line, false, nil
}

func startsVerb(s string) bool {
	return slices.ContainsFunc(verbs, func(verb string) bool {
		return len(s) <= len(verb) && strings.EqualFold(s, verb[:len(s)])
	})
}

// message completes a frame with the payload that its line announces.
func (f *frames) message(line []byte, s shape) (frame, error) {
	start := len(line)
	all := slices.Grow(line, s.size+2)[:start+s.size+2]
	n, err := io.ReadFull(f.in, all[start:])
	if err != nil {
		return frame{bytes: all[:start+n]}, err
	}
	m := &Message{Subject: s.subject, Reply: s.reply, Payload: all[start+s.headerSize : start+s.size]}
	if s.headerSize > 0 {
		m.Header = all[start : start+s.headerSize]
	}
	return frame{bytes: all, message: m}, nil
}

// chunk returns what there is of an unknown protocol.
func (f *frames) chunk() (frame, error) {
	buf := make([]byte, chunkSize)
	n, err := f.in.Read(buf)
	return frame{bytes: bytes.Clone(buf[:n])}, err
}

// shape is what a protocol line says of the frame it starts.
type shape struct {
	message          bool
	subject, reply   string
	headerSize, size int
}

// parse reads a protocol line. It is not ok if that is no NATS protocol.
//
//	PUB  <subject> [reply] <size>           MSG  <subject> <sid> [reply] <size>
//	HPUB <subject> [reply] <header> <size>  HMSG <subject> <sid> [reply] <header> <size>
func parse(line []byte) (s shape, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return shape{}, false
	}
	verb, args := strings.ToUpper(fields[0]), fields[1:]
	switch verb {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return shape{}, slices.Contains(verbs, verb)
	}

	delivery := strings.HasSuffix(verb, "MSG")
	header := strings.HasPrefix(verb, "H")
	names, sizes := 1, 1 // how many fields there are of each, without a reply subject
	if delivery {
		names++
	}
	if header {
		sizes++
	}
	if len(args) < names+sizes || len(args) > names+1+sizes {
		return shape{}, false
	}
	s = shape{message: true, subject: args[0]}
	if len(args) == names+1+sizes {
		s.reply = args[names]
	}
	s.size, ok = size(args[len(args)-1], maxPayload)
	if ok && header {
		s.headerSize, ok = size(args[len(args)-2], s.size)
	}
	return s, ok
}

func size(field string, most int) (int, bool) {
	n, err := strconv.Atoi(field)
	return n, err == nil && n >= 0 && n <= most
}
