package witness

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// maxMessageBytes bounds a message. What is longer ends the connection.
	maxMessageBytes = 64 << 10
	// maxTerms bounds the terms of one program.
	maxTerms = 100_000
	// drainTimeout is how long the last messages of a dead process may take to read. They are in the buffer of the connection already.
	drainTimeout = 50 * time.Millisecond
	// groupCheckInterval is the time from one look at a group of processes to the next.
	groupCheckInterval = 2 * time.Millisecond
)

// Keeper holds the terms of programs, and releases those of each program that dies.
type Keeper struct {
	releaser  releaser
	groupRuns func(group int) bool
}

// NewKeeper returns a keeper that connects by dial while it holds terms.
func NewKeeper(dial Dial, log *slog.Logger, groupRuns func(group int) bool) *Keeper {
	return &Keeper{releaser: releaser{dial: dial, log: log}, groupRuns: groupRuns}
}

// Conn is the connection to a program.
type Conn interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// Keep holds the terms that a program tells on conn, until the process is dead or ctx ends. Then it releases the terms of a dead process, and
// returns when all of them are released, over or lost, or when ctx ends. It returns before if the program closes the connection and holds no terms.
// A process that is nil is dead when the connection ends.
func (k *Keeper) Keep(ctx context.Context, conn Conn, p *Process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	dead := make(chan struct{})
	if p != nil {
		go func() {
			if p.Wait(ctx) == nil {
				close(dead)
				_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
			}
		}()
	}
	held := holding{keeper: k, terms: map[record.Commitment]Term{}}
	defer held.end()
	whole := held.read(conn)
	if len(held.terms) == 0 {
		return
	}
	if p != nil {
		select {
		case <-dead:
		case <-ctx.Done():
		}
	}
	if !whole { // what was not read may have named another group of processes, or have said that the term is over
		maps.DeleteFunc(held.terms, func(_ record.Commitment, t Term) bool { return t.Group != 0 })
	}
	if ctx.Err() == nil {
		held.release(ctx)
	}
}

// holding are the terms of one program.
type holding struct {
	keeper *Keeper
	terms  map[record.Commitment]Term
	client *client // nil while there are no terms
}

// read reads messages until the connection ends, and reports whether it has read all that the program wrote.
func (h *holding) read(conn io.Reader) (whole bool) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxMessageBytes)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) == nil {
			h.take(&m)
		}
	}
	return lines.Err() == nil
}

// take takes one message. A term that is not whole, or one too many, is left to its lease.
func (h *holding) take(m *message) {
	if m.Over != nil {
		delete(h.terms, *m.Over)
	}
	if t := m.Began; t != nil && t.valid() && len(h.terms) < maxTerms {
		h.terms[t.Commitment()] = *t
		if h.client == nil {
			h.client = h.keeper.releaser.acquire()
		}
		h.client.prepare(t.bucketID())
		h.keeper.releaser.log.Debug("Term is watched", "bucket", t.Bucket, "election", t.Key, "name", t.Name)
	}
	if len(h.terms) == 0 {
		h.end()
	}
}

// end gives up the connection to the server.
func (h *holding) end() {
	if h.client != nil {
		h.client = nil
		h.keeper.releaser.discard()
	}
}

// release releases the terms of a process that is dead: at once, or once a group of processes is dead, too.
func (h *holding) release(ctx context.Context) {
	died := time.Now()
	byGroup := map[int][]Term{}
	for t := range maps.Values(h.terms) {
		byGroup[t.Group] = append(byGroup[t.Group], t)
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		terms := byGroup[group]
		if group == 0 || h.awaitGroup(ctx, group, died, terms) {
			h.keeper.releaser.releaseAll(ctx, h.client, terms, died)
		}
	}
}

// awaitGroup waits until a group of processes is dead, for as long as the leases may last.
func (h *holding) awaitGroup(ctx context.Context, group int, died time.Time, terms []Term) bool {
	longest := slices.MaxFunc(terms, func(a, b Term) int { return cmp.Compare(a.LeaseMs, b.LeaseMs) })
	ctx, cancel := context.WithDeadline(ctx, died.Add(longest.lease()))
	defer cancel()
	for h.keeper.groupRuns(group) {
		if timeutil.Pause(ctx, groupCheckInterval) != nil {
			return false
		}
	}
	return true
}
