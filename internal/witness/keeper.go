package witness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// drainTimeout is how long the last messages of a dead process may take to read. They are in the buffer of the connection already.
	drainTimeout = 50 * time.Millisecond
	// groupCheckInterval is the time from one look at a group of processes to the next.
	groupCheckInterval = 2 * time.Millisecond
	// minImageCheckInterval and maxImageCheckInterval are the first and the longest time from one look at the image of a process to the next.
	minImageCheckInterval = time.Millisecond
	maxImageCheckInterval = time.Second
)

// Keeper holds the terms of programs, and releases those of each program that dies.
type Keeper struct {
	releaser  releaser
	groupRuns func(group int) bool // nil if terms of groups are refused
	prefixes  map[string]bool      // of the JetStream API, in which buckets may be; nil for all
	ended     func()               // called when a program has ended, before its terms are released; nil for nothing
}

// NewKeeper returns a keeper for a program that started it. The keeper connects by dial while it holds terms.
func NewKeeper(dial Dial, log *slog.Logger, groupRuns func(group int) bool) *Keeper {
	return &Keeper{releaser: releaser{dial: dial, log: log}, groupRuns: groupRuns}
}

// Conn is the connection to a program.
type Conn interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// Keep holds the terms that a program tells on conn, until the program has ended or ctx ends. Then it releases the terms of the program, and
// returns when all of them are released, over or lost, or when ctx ends.
//
// A program has ended when its process is dead, or has replaced itself by exec. The end of the connection alone proves neither. After that end Keep
// waits for the proof for as long as the leases may last, and then forgets the terms: a program that lives connects again.
func (k *Keeper) Keep(ctx context.Context, conn Conn, p *Process) {
	k.keep(ctx, conn, p, nil, func(err error) { k.releaser.log.Warn("A term is left to its lease", "error", err) })
}

// keep is Keep for a program that has an account, and calls refuse with the reason when a term is left to its lease.
func (k *Keeper) keep(ctx context.Context, conn Conn, p *Process, a *account, refuse func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	dead := make(chan struct{})
	go func() {
		if p.Wait(ctx) == nil {
			close(dead)
			_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
		}
	}()
	h := holding{keeper: k, ctx: ctx, account: a, refuse: refuse, terms: map[record.Commitment]Term{}, buckets: map[bucketID]int{}}
	defer h.end()
	whole := h.read(conn)
	if len(h.terms) == 0 || !h.awaitEnd(p, dead) {
		return
	}
	if k.ended != nil {
		k.ended()
	}
	if !whole { // what was not read may have named another group of processes, or have said that the term is over
		for c, t := range h.terms {
			if t.Group != 0 {
				h.forget(c)
			}
		}
	}
	h.release()
}

// holding are the terms of one program.
type holding struct {
	keeper  *Keeper
	ctx     context.Context
	account *account
	refuse  func(error)
	terms   map[record.Commitment]Term
	buckets map[bucketID]int // how many terms are in each bucket
	client  *client          // nil while there are no terms
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

// take takes one message. A term that is not whole, not permitted, or one too many is left to its lease.
func (h *holding) take(m *message) {
	if m.Over != nil {
		h.forget(*m.Over)
	}
	if m.Began != nil {
		if err := h.watch(*m.Began); err != nil {
			h.refuse(err)
		}
	}
	if len(h.terms) == 0 {
		h.disconnect()
	}
}

// watch takes a term, in the place of what was known of it.
func (h *holding) watch(t Term) error {
	if err := h.keeper.permits(&t); err != nil {
		return err
	}
	id, size := t.bucketID(), t.bytes()
	if h.buckets[id] == 0 {
		size += bucketBytes
	}
	if err := h.account.take(size); err != nil {
		return err
	}
	if h.client == nil {
		h.client = h.keeper.releaser.acquire()
	}
	if h.buckets[id]++; h.buckets[id] == 1 {
		h.open(id)
	}
	h.forget(t.Commitment())
	h.terms[t.Commitment()] = t
	h.keeper.releaser.log.Debug("Term is watched", "bucket", t.Bucket, "election", t.Key, "name", t.Name)
	return nil
}

// permits returns why the keeper takes no such term; nil if it does.
func (k *Keeper) permits(t *Term) error {
	prefix := prefixOf(t.API)
	switch err := t.validate(); {
	case err != nil:
		return err
	case t.Group != 0 && k.groupRuns == nil:
		return errors.New("the term is that of a group of processes, which only a witness that the program started can watch")
	case k.prefixes != nil && !k.prefixes[prefix]:
		return fmt.Errorf("the witness takes no term with the API prefix %q: start election-cli witness with --allow-api-prefix '%[1]s', or for a domain with --allow-domain", prefix)
	}
	return nil
}

// open has the bucket opened before it is needed, and tells the program if it is none in which the witness writes.
func (h *holding) open(id bucketID) {
	c := h.client
	c.want(id)
	go func() {
		if _, err := c.bucket(h.ctx, id); isForeign(err) {
			h.refuse(err)
		}
	}()
}

// forget forgets a term, if it is known.
func (h *holding) forget(c record.Commitment) {
	t, known := h.terms[c]
	if !known {
		return
	}
	delete(h.terms, c)
	id, size := t.bucketID(), t.bytes()
	if h.buckets[id]--; h.buckets[id] == 0 {
		delete(h.buckets, id)
		h.client.unwant(id)
		size += bucketBytes
	}
	h.account.give(size)
}

// end forgets all terms.
func (h *holding) end() {
	for c := range h.terms {
		h.forget(c)
	}
	h.disconnect()
}

// disconnect gives up the connection to the server.
func (h *holding) disconnect() {
	if h.client != nil {
		h.client = nil
		h.keeper.releaser.discard()
	}
}

// awaitEnd waits until the program has ended, for as long as the leases of its terms may last.
func (h *holding) awaitEnd(p *Process, dead <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(h.ctx, longestLease(maps.Values(h.terms)))
	defer cancel()
	for interval := minImageCheckInterval; !p.ImageEnded(); interval = min(2*interval, maxImageCheckInterval) {
		select {
		case <-dead:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(interval):
		}
	}
	return true
}

func longestLease(terms iter.Seq[Term]) (longest time.Duration) {
	for t := range terms {
		longest = max(longest, t.lease())
	}
	return longest
}

// release releases the terms of a program that has ended: at once, or once a group of processes is dead, too.
func (h *holding) release() {
	ended := time.Now()
	byGroup := map[int][]Term{}
	for t := range maps.Values(h.terms) {
		byGroup[t.Group] = append(byGroup[t.Group], t)
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		terms := byGroup[group]
		if group == 0 || h.awaitGroup(group, ended.Add(longestLease(slices.Values(terms)))) {
			h.keeper.releaser.releaseAll(h.ctx, h.client, terms, ended)
		}
	}
}

// awaitGroup waits until a group of processes is dead, or until the given time.
func (h *holding) awaitGroup(group int, until time.Time) bool {
	ctx, cancel := context.WithDeadline(h.ctx, until)
	defer cancel()
	for h.keeper.groupRuns(group) {
		if timeutil.Pause(ctx, groupCheckInterval) != nil {
			return false
		}
	}
	return true
}
