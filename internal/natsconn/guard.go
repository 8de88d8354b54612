package natsconn

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// minPongTimeout is how long a server may take at least to answer a ping, until the connection counts as forgotten.
	minPongTimeout = time.Second
	// pongAnswers is for how many answers of the server a ping waits in any case: as many times as a request, or another connection, takes.
	pongAnswers = 4
	// pongValid is for how long an answered ping shows that the connection works.
	pongValid = time.Second
	// forceJitter spreads the new connections of processes whose connections were forgotten at the same moment.
	forceJitter = 500 * time.Millisecond
	// minForcePause and maxForcePause are the least time from one forced reconnection to the next: at first, and at most. It doubles if the
	// connection has to be made again within twice that time.
	minForcePause, maxForcePause = 10 * time.Second, 5 * time.Minute
	// reachTimeout limits the attempt to reach a server by another connection.
	reachTimeout = 2 * time.Second
	// maxDoubt is how long a connection at most may still answer after its time, while it is found out whether another one does.
	maxDoubt = forceJitter + (1+pongAnswers)*reachTimeout
)

// Guard is one election's interest in its connection. A firewall, a load balancer or a host that lost its power can forget a connection
// without a word to the client. The client itself notices by its pings, which take minutes by default. All guards of one connection in a
// process share one decision. Only a guard notices such a connection within a lease: then its leader stays leader.
type Guard struct {
	link  *guardedConn
	force bool
	log   *slog.Logger
}

// guardedConn is what the guards of one connection share.
type guardedConn struct {
	nc     *nats.Conn
	ctx    context.Context // ends with the last guard
	cancel context.CancelFunc

	mu       sync.Mutex // never held across I/O
	guards   map[*Guard]struct{}
	asking   bool
	answered time.Time     // when a ping was last answered
	warned   bool          // the present silence was logged
	forced   time.Time     // when the connection was last made again by force
	pause    time.Duration // until it may be again
}

// guarded are the connections of this process that have guards.
var guarded struct {
	sync.Mutex
	by map[*nats.Conn]*guardedConn
}

// NewGuard returns a guard of the connection. Unless force is true for all guards of a connection, a connection that does not answer is only
// logged. The caller must call Leave.
func NewGuard(nc *nats.Conn, force bool, log *slog.Logger) *Guard {
	guarded.Lock()
	defer guarded.Unlock()
	c := guarded.by[nc]
	if c == nil {
		if guarded.by == nil {
			guarded.by = map[*nats.Conn]*guardedConn{}
		}
		c = &guardedConn{nc: nc, guards: map[*Guard]struct{}{}}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		guarded.by[nc] = c
	}
	g := &Guard{c, force, log}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guards[g] = struct{}{}
	return g
}

// Leave ends the guard.
func (g *Guard) Leave() {
	guarded.Lock()
	defer guarded.Unlock()
	c := g.link
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.guards, g); len(c.guards) == 0 {
		c.cancel()
		delete(guarded.by, c.nc)
	}
}

// Suspect is called when something did not arrive in time that the server should have sent: an answer, or a notification that is due. It
// returns at once. In the background the server is asked for a sign of life. If there is none, and a server can be reached by another
// connection, the connection is made again by force. answer is how long the server takes to answer a request. A nil guard does nothing.
func (g *Guard) Suspect(answer time.Duration) {
	if g == nil {
		return
	}
	c := g.link
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking || time.Since(c.answered) < pongValid || c.ctx.Err() != nil {
		return
	}
	c.asking = true
	go func() {
		c.ask(g.log, max(minPongTimeout, pongAnswers*answer))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asking = false
	}()
}

// ask finds out whether the connection works, and has it made again if it does not.
func (c *guardedConn) ask(log *slog.Logger, timeout time.Duration) {
	if !c.nc.IsConnected() {
		return // the client knows
	}
	before := c.nc.Stats()
	ctx, answered := context.WithTimeout(c.ctx, timeout+maxDoubt) // the answer ends it
	defer answered()
	go func() {
		if c.nc.FlushWithContext(ctx) == nil {
			c.worked()
			answered()
		}
	}()
	silent := func() bool {
		now := c.nc.Stats()
		return ctx.Err() == nil && c.nc.IsConnected() && now.InMsgs == before.InMsgs && now.Reconnects == before.Reconnects
	}
	if !timeutil.Sleep(ctx, timeout) || !silent() {
		return
	}
	force, due := c.mayForce()
	switch {
	case force && !due:
	case !force:
		c.warn(log, "Connection does not answer", "fix", "connect with a nats.PingInterval of a sixth of the TTL, or allow a forced reconnection")
	case timeutil.Sleep(ctx, timeutil.Random(forceJitter)) && silent() && c.canReach(ctx) && silent():
		c.warn(log, "Connection does not answer, connecting again", "fix", "connect with a nats.PingInterval of a sixth of the TTL to notice it sooner")
		c.force()
	case silent():
		c.warn(log, "Connection does not answer, nor can a server be reached by another")
	}
}

// worked takes note that the server answered a ping.
func (c *guardedConn) worked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered, c.warned = time.Now(), false
}

// mayForce reports whether all guards let the connection be made again by force, and whether the pause since the last time is over.
func (c *guardedConn) mayForce() (force, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	force = true
	for g := range c.guards {
		force = force && g.force
	}
	return force, time.Since(c.forced) >= c.pause
}

// force makes the connection again.
func (c *guardedConn) force() {
	c.mu.Lock()
	if time.Since(c.forced) >= 2*c.pause { // it worked meanwhile
		c.pause = minForcePause / 2
	}
	c.forced, c.pause, c.warned = time.Now(), min(2*c.pause, maxForcePause), false
	c.mu.Unlock()
	_ = c.nc.ForceReconnect() // which fails only if the connection is closed
}

// warn logs the present silence once.
func (c *guardedConn) warn(log *slog.Logger, message string, attrs ...any) {
	c.mu.Lock()
	known := c.warned
	c.warned = true
	for g := range c.guards { // another election may have a logger where the one that suspects the connection has none
		if !log.Enabled(c.ctx, slog.LevelWarn) {
			log = g.log
		}
	}
	c.mu.Unlock()
	if !known {
		log.Warn(message, attrs...)
	}
}

// canReach reports whether a server of the connection answers on a connection of its own: where none does, to give up the present one
// gains nothing. It returns only when the present connection has had a few times as long to answer as the other one took: on a host
// that is overloaded both are slow, and connecting again would add to the load.
func (c *guardedConn) canReach(ctx context.Context) bool {
	begun := time.Now()
	return c.reaches(ctx) && timeutil.Sleep(ctx, pongAnswers*time.Since(begun))
}

// reaches reports whether a server answers on a connection of its own.
func (c *guardedConn) reaches(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	dials := dialsOf(c.nc)
	reached := make(chan bool, len(dials))
	for _, dial := range dials {
		go func() { reached <- c.answers(ctx, dial) }()
	}
	for range dials {
		select {
		case ok := <-reached:
			if ok {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// answers reports whether a server is there. It is the server that speaks first, unless a handshake comes before.
func (c *guardedConn) answers(ctx context.Context, dial dialFunc) bool {
	conn, err := dial(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if u, err := url.Parse(c.nc.ConnectedUrl()); c.nc.Opts.TLSHandshakeFirst || err == nil && (u.Scheme == "ws" || u.Scheme == "wss") {
		return true
	}
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}
