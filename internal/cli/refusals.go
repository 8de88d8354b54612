package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// refusals remembers what the server has refused on a connection, because the user is not permitted to do it. The server answers no
// request that it refuses, so a command only sees that its time is over.
type refusals struct {
	mu   sync.Mutex
	list []string
}

// add remembers err, if it is a refusal.
func (r *refusals) add(err error) {
	refused := describeRefusal(err)
	if r == nil || refused == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.list, refused) {
		r.list = append(r.list, refused)
	}
}

// explain returns err with what was refused, if err is the lack of an answer.
func (r *refusals) explain(err error) error {
	if r == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w\nthe server does not permit this user to %s", err, strings.Join(r.list, ", or to "))
}

// refusal matches what a server says of a message or a subscription that it refuses.
var refusal = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]*)"`)

// describeRefusal says in words which permission is missing; "" if err is no such refusal.
func describeRefusal(err error) string {
	found := refusal.FindStringSubmatch(fmt.Sprint(err))
	if found == nil {
		return ""
	}
	if strings.EqualFold(found[1], "publish") {
		return "publish to " + found[2]
	}
	return "subscribe to " + found[2]
}
