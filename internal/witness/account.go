package witness

import (
	"fmt"
	"sync"
)

// What the programs of a host may take of the memory of its witness, in bytes: one connection, one user, and all of them.
const (
	maxConnectionBytes = 8 << 20
	maxUserBytes       = 32 << 20
	maxTotalBytes      = 128 << 20

	// connectionBytes and bucketBytes are about what a connection takes, and a bucket that a connection names.
	connectionBytes = 32 << 10
	bucketBytes     = 8 << 10
)

// ledger bounds the memory that the programs of a host take in its witness.
type ledger struct {
	mu    sync.Mutex
	total int
	users map[uint32]int
}

// account is what one connection takes. A nil account takes what it wants.
type account struct {
	ledger *ledger
	user   uint32
	taken  int
}

// open returns the account of a connection of a user.
func (l *ledger) open(user uint32) (*account, error) {
	a := &account{ledger: l, user: user}
	return a, a.take(connectionBytes)
}

// take takes memory, or returns an error if that is too much.
func (a *account) take(bytes int) error {
	if a == nil {
		return nil
	}
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	const fix = "lead fewer keys at a time, or give the program a witness of its own with witness.Start"
	switch {
	case a.taken+bytes > maxConnectionBytes:
		return fmt.Errorf("the terms of one program may take %d MiB in the witness of a host: %s", maxConnectionBytes>>20, fix)
	case l.users[a.user]+bytes > maxUserBytes:
		return fmt.Errorf("the programs of user %d may take %d MiB in the witness of a host: %s", a.user, maxUserBytes>>20, fix)
	case l.total+bytes > maxTotalBytes:
		return fmt.Errorf("all programs together may take %d MiB in the witness of a host: %s", maxTotalBytes>>20, fix)
	}
	l.add(a, bytes)
	return nil
}

// give gives memory back.
func (a *account) give(bytes int) {
	if a == nil {
		return
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.ledger.add(a, -bytes)
}

// close gives back all that is taken.
func (a *account) close() { a.give(a.taken) }

// add adds to what an account has taken. The caller holds mu.
func (l *ledger) add(a *account, bytes int) {
	if l.users == nil {
		l.users = map[uint32]int{}
	}
	a.taken += bytes
	l.total += bytes
	if l.users[a.user] += bytes; l.users[a.user] == 0 {
		delete(l.users, a.user)
	}
}
