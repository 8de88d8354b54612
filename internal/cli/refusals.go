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

// howToGrant says where to find the permissions of each role.
const howToGrant = "\nFix: permit that on the server; docs/PERMISSIONS.md has a block for each role, such as candidate, observer and operator"

// explain returns err in words, if it is a refusal, and with what was refused, if it is the lack of an answer.
func (r *refusals) explain(err error) error {
	if r == nil {
		return err
	}
	if refused := describeRefusal(err); refused != "" && errors.Is(err, nats.ErrPermissionViolation) {
		return &explainedError{inWords(err, refused), err}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return &explainedError{fmt.Sprintf("%v\nThe server does not permit this user to %s%s", err, strings.Join(r.list, ", or to "), howToGrant), err}
}

// inWords returns the message of an error that ends with a refusal, with the refusal in words, unless the message has it before.
func inWords(err error, refused string) string {
	before, _, _ := strings.Cut(err.Error(), nats.ErrPermissionViolation.Error())
	if strings.Contains(before, refused) {
		return strings.TrimSuffix(before, ": ") + howToGrant
	}
	return before + "the server does not permit this user to " + refused + howToGrant
}

// explainedError is an error with another message.
type explainedError struct {
	text string
	err  error
}

// Error returns the message.
func (e *explainedError) Error() string { return e.text }

// Unwrap returns the error.
func (e *explainedError) Unwrap() error { return e.err }

// refusal matches what a server says of a message or a subscription that it refuses.
var refusal = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// anyConsumer matches the subject of a request about a consumer up to its name, which the client makes up.
var anyConsumer = regexp.MustCompile(`(CONSUMER\.(?:CREATE|DELETE)\.[^.]+)\.[^.]+`)

// Refused returns what a server refuses according to a text, a message or else a subscription, and the subject; empty if the text is about no refusal.
func Refused(text string) (subject string, message bool) {
	found := refusal.FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	return found[2], strings.EqualFold(found[1], "publish")
}

// describeRefusal says in words which permission is missing; "" if err is no such refusal.
func describeRefusal(err error) string {
	subject, message := Refused(fmt.Sprint(err))
	switch {
	case subject == "":
		return ""
	case message:
		return "publish to " + anyConsumer.ReplaceAllString(subject, "$1.*")
	}
	return "subscribe to " + subject
}
