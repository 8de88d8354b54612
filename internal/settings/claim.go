package settings

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Claim is what an election is given that a session leads: the claim of its key decides, in place of a candidate of package core, and the session makes the
// requests. The mutex is that of the session. All other methods but Detach, Instance and Leader are called while it is held.
type Claim interface {
	shell.Core
	sync.Locker

	Status() core.Status
	Doing() string
	// Attach says whom the claim tells what the session has decided about it.
	Attach(Attached)
	// GoOn does what the session decides now.
	GoOn()
	// Failure says when and why a request failed on which the election depends; nil if none did.
	Failure() (at time.Time, err error)
	// Detach says that the election has ended for good. It may be called again, and returns when another election of the key can be made.
	Detach()

	// Instance returns the id of the session.
	Instance() string
	// Leader reads who leads the key; the zero Holder is nobody.
	Leader(ctx context.Context) (*Holder, error)
}

// Attached is an election, as its claim sees it. The mutex is held for the first method.
type Attached interface {
	// DecideAgain has the claim decide again, in the loop of the election.
	DecideAgain(now time.Time)
	// Closed ends the election: the connection is closed for good.
	Closed()
}

// OfProcess returns what the options of a session set, and an error that names everything that is wrong with them: only those that concern the whole process
// are of use there.
func OfProcess[Option ~func(*Options)](opts []Option, name string) (*Options, error) {
	o := apply(opts)
	rest := *o
	rest.Logger, rest.Debug, rest.Registerer, rest.GivenRegisterer, rest.Namespace, rest.Identity = nil, nil, nil, false, "", nil
	rest.Witness, rest.NoForce, rest.ReleaseTimeout, rest.missing = nil, false, nil, nil
	if rest.HealthThreshold == defaultThreshold {
		rest.HealthThreshold = 0
	}
	problems := []error{validate.Name(name), o.Durations.Validate(), o.validateMetrics(), o.validateGiven()}
	if !reflect.ValueOf(rest).IsZero() {
		problems = append(problems, validate.Errorf("an option concerns one election only: give session.Open WithLogger, WithDebug, WithRegisterer, WithMetricsNamespace, WithMetricsIdentity, WithReleaseTimeout, WithoutForcedReconnect or a witness, and give the others to Session.Election"))
	}
	return o, errors.Join(problems...)
}

// validateClaim returns an error if an option is of no use to an election that a session leads.
func (o *Options) validateClaim() error {
	if o.Claim == nil {
		return nil
	}
	var problems []error
	refuse := func(option string, given bool, fix string) {
		if given {
			problems = append(problems, validate.Errorf("%s has no effect on an election of a session: %s", option, fix))
		}
	}
	refuse("a duration", o.Durations != timing.Durations{}, "leave it out: the session has one TTL, one interval and one release timeout for all its keys")
	refuse("WithBackoff", o.Backoff != nil, "leave it out: candidates wait for a notification, and then take turns")
	refuse("WithPriority and WithPreemption", o.Priority != 0 || o.Preempt, "leave them out, and move keys by Transfer")
	refuse("WithPlainValue", o.PlainValue, "leave it out: Choria knows no sessions")
	refuse("a witness", o.Witness != nil, "give it to session.Open: it is one for all keys")
	refuse("WithoutForcedReconnect", o.NoForce, "give it to session.Open: the connection is one for all keys")
	refuse("OnNext", len(o.OnNext) > 0, "leave it out: the leader names nobody before it releases the key")
	return errors.Join(problems...)
}
