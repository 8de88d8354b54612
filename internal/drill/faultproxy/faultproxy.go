// Package faultproxy is a proxy, for drills and tests, between a NATS client and its server: a network link that can be made to fail while connections run
// over it.
//
// A new [Link] is perfect. Each method named after a fault makes it worse, faults add up, and [Link.Heal] ends them all:
//
//	                 requests          replies           the client notices
//	Cut              vanish            vanish            nothing, until Heal
//	Forget           vanish            vanish            nothing, until Heal; a new connection works
//	Stall            held              held              nothing
//	StallReplies     pass              held              nothing
//	LoseRequests     some vanish       pass              a timeout
//	LoseReplies      pass              some vanish       a timeout, yet the request was applied
//	DelayReplies     pass              pass, late        a slow server
//	Disconnect       lost on the way   lost on the way   a disconnect; it may dial again
//
// A request is any message to the server, a reply any message to the client. The proxy passes the NATS protocol frame by frame, so that a
// message is lost or late as a whole and the connection survives that. The fate of a frame is decided when it enters the link: a fault does
// not affect frames that entered before, except that a stalled link delivers nothing and a cut link loses all that it holds.
//
// Bytes that are no NATS protocol, such as TLS, are passed as they come. They can be cut, stalled, delayed and disconnected, but not lost by
// message.
//
// A link accepts bytes even while it delivers nothing, as the buffers of a real network do, up to 16 MiB each way and connection. A client
// therefore never blocks in a write until that much is held.
//
// A link may be used within a testing/synctest bubble: it waits on channels only, so virtual time passes while it holds or delays. Its
// methods may be called at any time from any goroutine.
//
// The functions passed to a link are called one at a time and may keep state. They may call its methods, all but Close, and must not wait:
// the client's writes wait for them.
package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout limits the dials of a link that was made without a dial function.
const dialTimeout = 5 * time.Second

var (
	errCut    = errors.New("faultproxy: no route to the server: the link is cut")
	errClosed = errors.New("faultproxy: closed")
	errNoDial = errors.New("faultproxy: no dial function to reach the server with")
)

// Link carries connections between one client and its server and can be made to
// fail while they run. The zero Link is not usable: call [New].
type Link struct {
	dial  func() (net.Conn, error)
	judge chan struct{}  // holds one token while a function of the caller runs
	pumps sync.WaitGroup // the goroutines of all connections and listeners

	mu        sync.Mutex // held for moments only, never while bytes are moved
	conns     map[*conn]struct{}
	listeners []net.Listener
	closed    bool
	cut       bool
	requests  fault // on the way to the server
	replies   fault // on the way to the client
	onRequest func(Message)
	asked     asked
}

// fault is the fault of one direction of a link.
type fault struct {
	stalled bool
	delay   time.Duration
	lose    func(Message) bool // nil loses nothing
}

// New returns a perfect link to the server that dial reaches, for instance
// server.InProcessConn. With a nil dial the link connects to the address that its Dial
// is given, and InProcessConn is not available.
func New(dial func() (net.Conn, error)) *Link {
	return &Link{
		dial:  dial,
		judge: make(chan struct{}, 1),
		conns: make(map[*conn]struct{}),
		asked: make(asked),
	}
}

// InProcessConn opens a connection, so that a Link serves as a nats.InProcessServer.
// It fails at once while the link is cut.
func (l *Link) InProcessConn() (net.Conn, error) {
	if l.dial == nil {
		return nil, errNoDial
	}
	return l.open(l.dial)
}

// Dial opens a connection, so that a Link serves as a nats.SetCustomDialer. The
// network and address count only if the link was made without a dial function.
// It fails at once while the link is cut.
func (l *Link) Dial(network, address string) (net.Conn, error) {
	if l.dial != nil {
		return l.open(l.dial)
	}
	return l.open(func() (net.Conn, error) {
		return net.DialTimeout(network, address, dialTimeout)
	})
}

// Listen has the link accept connections on a free port of the loopback interface, and connect each one with the server at an address, until
// Close. It returns the address of the port. The server's address counts as in Dial.
func (l *Link) Listen(server string) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = listener.Close()
		return "", errClosed
	}
	l.listeners = append(l.listeners, listener)
	l.pumps.Go(func() { l.serve(listener, server) })
	return listener.Addr().String(), nil
}

// serve accepts connections until listener is closed, and returns once they have ended too.
func (l *Link) serve(listener net.Listener, server string) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { l.forward(client, server) })
	}
}

// forward copies bytes between a client and the server, until either side closes.
func (l *Link) forward(client net.Conn, address string) {
	var requests sync.WaitGroup
	defer requests.Wait() // after both sides are closed
	defer func() { _ = client.Close() }()
	server, err := l.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	requests.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
}

// Cut parts client and server as an unplugged cable does: bytes vanish both ways and
// neither end notices. New dials fail at once. Heal closes the connections that were
// cut at both ends; until then not even the end of one reaches the other side.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		c.sever()
	}
}

// Forget parts client and server on the connections that there are, as a firewall does that has forgotten them: bytes vanish both ways and
// neither end notices. New dials succeed. Heal closes the forgotten connections at both ends.
func (l *Link) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.sever()
	}
}

// Stall holds everything, in both directions: nothing passes and nothing is lost.
// Heal delivers what was held, in order, the end of a connection included: a request
// is applied then even if its client has long given up and gone.
func (l *Link) Stall() {
	l.change(func() { l.requests.stalled, l.replies.stalled = true, true })
}

// StallReplies holds what the server sends, while requests pass.
func (l *Link) StallReplies() {
	l.change(func() { l.replies.stalled = true })
}

// LoseReplies drops the messages to the client that match accepts, or all of them if
// match is nil. The server has applied the request; its answer never comes.
// All else the server sends, like PONG, still passes. It replaces an earlier match.
// See [Once] for losing a single one.
func (l *Link) LoseReplies(match func(Message) bool) {
	l.change(func() { l.replies.lose = orAll(match) })
}

// LoseRequests drops the messages to the server that match accepts, or all of them if
// match is nil: the server never receives them. It replaces an earlier match.
func (l *Link) LoseRequests(match func(Message) bool) {
	l.change(func() { l.requests.lose = orAll(match) })
}

// DelayReplies delivers whatever the server sends d later than it was sent, in
// order. It replaces an earlier delay, for what is sent from now on.
func (l *Link) DelayReplies(d time.Duration) {
	l.change(func() { l.replies.delay = d })
}

// Disconnect closes all connections at both ends, now. What they held is lost. The
// client may dial again.
func (l *Link) Disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.kill()
	}
}

// Heal makes the link perfect again. What was held or late is delivered at once, and
// connections that were cut are closed at both ends. A hook of OnRequest stays.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.requests, l.replies = false, fault{}, fault{}
	for c := range l.conns {
		if c.severed {
			c.kill()
			continue
		}
		c.requests.hurry()
		c.replies.hurry()
	}
}

// OnRequest has f called for every message to the server, before it is decided
// whether that is lost. A fault that f itself sets already applies to the message.
// It replaces an earlier hook; nil removes it.
func (l *Link) OnRequest(f func(Message)) {
	l.change(func() { l.onRequest = f })
}

// Close closes all listeners, and all connections at both ends, and returns when every goroutine of the
// link has ended. New dials fail from then on. It must not be called from a function
// that the link calls.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	for _, listener := range l.listeners {
		_ = listener.Close()
	}
	for c := range l.conns {
		c.kill()
	}
	l.mu.Unlock()
	l.pumps.Wait()
}

// change alters the state of the link, for what enters it from now on.
func (l *Link) change(alter func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	alter()
}

// open connects a client to the server that dial reaches.
func (l *Link) open(dial func() (net.Conn, error)) (net.Conn, error) {
	if err := l.unusable(); err != nil {
		return nil, err
	}
	server, err := dial()
	if err != nil {
		return nil, fmt.Errorf("faultproxy: reaching the server: %w", err)
	}
	client, err := l.carry(server)
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	return client, nil
}

func (l *Link) unusable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unusableLocked()
}

func (l *Link) unusableLocked() error {
	switch {
	case l.closed:
		return errClosed
	case l.cut:
		return errCut
	}
	return nil
}

// carry starts to move bytes between server and the connection it returns.
func (l *Link) carry(server net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The link may have failed while the server was dialled.
	if err := l.unusableLocked(); err != nil {
		return nil, err
	}
	client, ours := net.Pipe()
	c := newConn(l, ours, server)
	l.conns[c] = struct{}{}
	for _, pump := range []func(){c.requests.take, c.requests.deliver, c.replies.take, c.replies.deliver} {
		l.pumps.Go(pump)
	}
	return client, nil
}
