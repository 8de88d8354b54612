package faultproxy

import (
	"net"
	"time"

	"github.com/natscampaign/election/internal/wakeup"
)

// heldLimit is how many bytes a half of a connection takes in before it is delivered
// of some. A sender of more than that into a stalled link blocks, as with TCP.
const heldLimit = 16 << 20

// conn is one connection through a link. Its two halves are independent, so that a
// client may be gone while its last requests are still on their way.
type conn struct {
	link           *Link
	client, server net.Conn
	requests       *half
	replies        *half

	// Guarded by link.mu.
	severed bool // was cut: all it carries vanishes, until Heal closes it
	killed  bool // both ends are closed and the pumps are to end
}

func newConn(l *Link, client, server net.Conn) *conn {
	c := &conn{link: l, client: client, server: server}
	c.requests = newHalf(c, client, server, &l.requests, l.request)
	c.replies = newHalf(c, server, client, &l.replies, l.reply)
	return c
}

// sever has everything vanish that is on its way or sent later. The lock is held.
func (c *conn) sever() {
	c.severed = true
	c.requests.drop()
	c.replies.drop()
}

// kill closes both ends, which also ends the pumps. The lock is held.
func (c *conn) kill() {
	c.killed = true
	_ = c.client.Close()
	_ = c.server.Close()
	c.requests.drop()
	c.replies.drop()
}

// half is one direction of a connection: take reads frames and queues them unless
// they get lost, deliver writes them when they are due.
type half struct {
	conn     *conn
	from, to net.Conn
	fault    *fault
	lost     func(Message) bool
	wake     chan struct{} // holds a token once there may be something to deliver
	room     chan struct{} // holds a token once there may be room in the queue

	// Guarded by link.mu.
	queue []parcel
	held  int  // bytes in the queue
	done  bool // deliver has ended
}

// parcel is what one half has yet to deliver: some bytes, or the end of the connection.
type parcel struct {
	bytes []byte
	due   time.Time
	end   bool
}

func newHalf(c *conn, from, to net.Conn, f *fault, lost func(Message) bool) *half {
	return &half{
		conn: c, from: from, to: to, fault: f, lost: lost,
		wake: make(chan struct{}, 1),
		room: make(chan struct{}, 1),
	}
}

// take reads until the sending end is closed.
func (h *half) take() {
	frames := newFrames(h.from)
	for {
		f, err := frames.next()
		lost := f.message != nil && h.lost(*f.message)
		if len(f.bytes) > 0 && !lost {
			h.push(parcel{bytes: f.bytes})
		}
		if err != nil {
			h.push(parcel{end: true})
			return
		}
	}
}

// push queues a parcel, once there is room for it.
func (h *half) push(p parcel) {
	for !h.tryPush(p) {
		<-h.room
	}
}

func (h *half) tryPush(p parcel) bool {
	l := h.conn.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.conn.severed || h.conn.killed {
		return true // into the void
	}
	if h.held > 0 && h.held+len(p.bytes) > heldLimit {
		return false
	}
	p.due = time.Now().Add(h.fault.delay)
	h.queue = append(h.queue, p)
	h.held += len(p.bytes)
	wakeup.Send(h.wake)
	return true
}

// deliver writes what was taken until the end of the connection was delivered too,
// or the connection is killed.
func (h *half) deliver() {
	defer h.finish()
	for {
		p, ok := h.next()
		if !ok {
			return
		}
		if p.end {
			_ = h.to.Close()
			return
		}
		// If the receiving end is gone, this is as lost as it would be on a
		// real network; the other half brings the news to the sender.
		_, _ = h.to.Write(p.bytes)
	}
}

// next waits for a parcel that is due; there is none if the connection is killed.
func (h *half) next() (p parcel, ok bool) {
	for {
		p, wait, ok := h.pop()
		if wait == 0 {
			return p, ok
		}
		select {
		case <-h.wake:
		case <-after(wait):
		}
	}
}

// forever is a wait that only a change of state ends.
const forever = time.Duration(-1)

// pop takes the first parcel if it may leave, or tells how long that has to wait.
func (h *half) pop() (p parcel, wait time.Duration, ok bool) {
	l := h.conn.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.conn.killed {
		return parcel{}, 0, false
	}
	if len(h.queue) == 0 || h.fault.stalled {
		return parcel{}, forever, false
	}
	p = h.queue[0]
	if wait := time.Until(p.due); wait > 0 {
		return parcel{}, wait, false
	}
	h.queue = h.queue[1:]
	h.held -= len(p.bytes)
	wakeup.Send(h.room)
	return p, 0, true
}

// drop loses what is queued. The lock is held.
func (h *half) drop() {
	h.queue, h.held = nil, 0
	wakeup.Send(h.wake)
	wakeup.Send(h.room)
}

// hurry has what is queued leave at once. The lock is held.
func (h *half) hurry() {
	for i := range h.queue {
		h.queue[i].due = time.Time{}
	}
	wakeup.Send(h.wake)
}

// finish forgets the connection after its second half has ended.
func (h *half) finish() {
	c := h.conn
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	h.done = true
	if c.requests.done && c.replies.done {
		delete(c.link.conns, c)
	}
}

// after is time.After, but a channel that never delivers for forever.
func after(d time.Duration) <-chan time.Time {
	if d == forever {
		return nil
	}
	return time.After(d)
}
