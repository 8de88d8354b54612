package election

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Option configures an [Election]. An option that is given twice counts as given last, but callbacks add up: they are
// called in the order in which they were given.
type Option func(*settings.Options)

// WithBackoff sets how long a candidate waits after a lost campaign. Default: one campaign interval, always.
func WithBackoff(b Backoff) Option {
	return func(o *settings.Options) { o.Backoff = b; o.Require("WithBackoff", b != nil) }
}

// WithDebug also sends every log line, formatted, to f, as Choria's election does. Several goroutines call it, also the one that renews, so
// it should be quick.
func WithDebug(f func(format string, a ...any)) Option {
	return func(o *settings.Options) { o.Debug = f; o.Require("WithDebug", f != nil) }
}

// WithCampaignInterval sets the time between two renewals of a leader, and between two campaigns of a candidate that has no [Backoff].
// Default: 0.75 of the bucket's TTL. It must be at least 10 ms, and leave at least 100 ms, room to try again, before the lease's deadline.
// A shorter interval survives longer outages of the server and costs more requests. Where 64 or more elections of a process share a bucket,
// their leaders bring renewals forward by a 64th of the interval at most, to make many of them at once.
func WithCampaignInterval(d time.Duration) Option {
	return func(o *settings.Options) { o.Interval = &d }
}

// WithSplay sets the longest random wait before the first campaign, which keeps a fleet that starts together from campaigning together.
// Default: for a candidate that is notified, the spread of answers to a vacancy, TTL/16 or 1 s, whichever is less; for any other, 5 s or one campaign
// interval, whichever is less. 0 turns it off. A candidate that finds a release at its start answers it by its turn, without a splay.
func WithSplay(longest time.Duration) Option {
	return func(o *settings.Options) { o.Splay = &longest }
}

// WithStandDown sets how long a winner waits, from the acknowledgement of its win, before it sends the renewal from which leadership counts: the time
// in which a previous leader that does not know yet stands down. Default: one campaign interval, the winner's or its predecessor's, whichever is
// longer, and 0.75 of the TTL where the winner knows of no predecessor or not how often it renewed. That forgives clocks that are wrong by nearly as
// much. At most 1 h. With d shorter, two leaders cannot overlap after an expiry as long as
// d plus the lease margin covers the error of the server's clock over one TTL. After a release that the previous leader wrote, and over a lease that
// this candidate has seen lapse by its own clock ([ReasonLapsed]), there is no stand-down at all.
func WithStandDown(d time.Duration) Option {
	return func(o *settings.Options) { o.StandDown = &d }
}

// WithLeaseMargin sets how much earlier than one TTL after its last acknowledged write was sent a leader stops leading. Default: 50 ms or a
// tenth of the TTL, whichever is more, which covers a clock that is slewed by one part in 12: with less, other candidates take over a lapsed lease
// later, mostly after the key has expired. It must be less than half the TTL.
func WithLeaseMargin(d time.Duration) Option {
	return func(o *settings.Options) { o.LeaseMargin = &d }
}

// WithReleaseTimeout sets how long a leader that stops or resigns keeps its lease alive while callbacks and work have not returned. After
// that nothing is released and the key expires. Default: one TTL.
func WithReleaseTimeout(d time.Duration) Option {
	return func(o *settings.Options) { o.ReleaseTimeout = &d }
}

// WithLogger sets the logger. Changes of leadership are logged as Info, the first failed renewal in a row as Warn, each campaign as Debug.
// Default: nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(o *settings.Options) { o.Logger = l; o.Require("WithLogger", l != nil) }
}

// WithRegisterer registers the election's metrics with r while the election runs. Default: none; nil is none. See docs/REFERENCE.md.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(o *settings.Options) {
		if o.Registerer, o.GivenRegisterer = r, true; validate.IsNil(r) {
			o.Registerer = nil
		}
	}
}

// WithMetricsNamespace sets the prefix of the names of all metrics: with "shop", election_leader is shop_election_leader. Packages dashboards
// and fence take the same. Default: none.
func WithMetricsNamespace(namespace string) Option {
	return func(o *settings.Options) { o.Namespace = namespace }
}

// WithMetricsIdentity sets the label identity of all metrics. Use it if the candidate's name changes with each start, as one with a process id
// does: each name makes new series. Candidates of one election and registerer need different identities. Default: the candidate's name.
func WithMetricsIdentity(identity string) Option {
	return func(o *settings.Options) { o.Identity = &identity }
}

// WithChoriaMetrics adds to the metrics of [WithRegisterer] three by the names that Choria's dashboards use: choria_election_campaigns,
// choria_election_leader and choria_election_interval_seconds. They have the values of election_campaigns_total, election_leader and
// election_interval_seconds in each scrape, and no namespace. The prefix is "choria", or "choria_asyncjobs" for the names of asyncjobs. Default:
// no such metrics.
func WithChoriaMetrics(prefix string) Option {
	return func(o *settings.Options) { o.Choria = &prefix }
}

// WithMetadata adds m to the record that this candidate writes while it holds the key, at most 8 KiB in all. A candidate whose record the
// bucket or the server does not take with m campaigns without it, see [Election.SetMetadata].
func WithMetadata(m map[string]string) Option {
	return func(o *settings.Options) { o.Metadata = maps.Clone(m) }
}

// WithPlainValue writes the bare name under the key in place of a record, as Choria's candidates do, for mixed fleets whose tools print it.
// A bare name does not prove whose late write it is: a renewal whose reply was lost ends the term at its deadline. A release is a record
// for 50 ms, for candidates of this package, and is then deleted for Choria's.
func WithPlainValue() Option {
	return func(o *settings.Options) { o.PlainValue = true }
}

// WithJetStream gives the election the JetStream context that a bare bucket was opened with; a [Bucket] brings its own. With a connection a
// candidate is notified of a vacancy by what the bucket republishes, at no cost to the server, reads the markers of expiries and deletions,
// and notices at once when its connection is made again or closed; a leader sees the candidates, so that its release names its successors;
// and operators can ask for a handover. Default: none; then one watcher per bucket is used.
func WithJetStream(js jetstream.JetStream) Option {
	return func(o *settings.Options) { o.JetStream = js; o.Require("WithJetStream", js != nil) }
}

// WithoutForcedReconnect leaves the connection alone if the server does not answer on it any more though the client takes it for
// connected, as when a firewall has forgotten it. The candidate then only logs a warning, and waits until the client notices by its pings:
// give nats.Connect a PingInterval of a sixth of the TTL. If one election on a connection has this option, it counts for all of them.
//
// Default: when the answer to a request, or the notification of a renewal, is overdue, and the server does not answer a ping within a
// second, the candidate makes sure that a server can be reached by another connection, and has the client connect again. Everything on the
// connection notices that. It is done once for all elections on the connection, and not again for 10 s; that pause doubles, up to 5 min,
// each time that the connection has to be made again soon after it.
func WithoutForcedReconnect() Option {
	return func(o *settings.Options) { o.NoForce = true }
}

// WithPriority has this candidate answer a vacancy before those of a lower priority. A release names successors of the highest priority
// first. To any other vacancy candidates answer over a spread of time, of which each priority that the leader saw has its part, the highest
// the earliest. Default: 0; it may be negative. A leader must have seen the candidates for this to work, so all must know their
// connection. It is a preference: when several candidates start together, or when those of a higher priority do not answer in time, one
// of a lower priority may lead; see [WithPreemption].
func WithPriority(n int) Option {
	return func(o *settings.Options) { o.Priority = n }
}

// WithPreemption has this candidate ask a leader of lower priority to transfer leadership to it, one campaign interval after it started,
// and then once per interval. The leader hands over in order, as by [Election.Transfer]; a leader that does not answer leads on. Default:
// leaders are left alone. Both candidates must know their connection.
func WithPreemption() Option {
	return func(o *settings.Options) { o.Preempt = true }
}

// WithHealthCheck has the candidate's health checked four times in each campaign interval, but no more often than every 100 ms and at
// least every 10 s. check may take 3/16 of the TTL, or as long as lies between two checks if that is more, and at most 10 s; its context ends then,
// and later it counts as failed, as it does when it panics. After 3 failures in a row, see [WithHealthThreshold], a leader hands over in order, as by [Election.Resign], and a candidate
// does not campaign; nor does it before the first success. As many successes make it healthy again, and up to eight times as many after
// relapses that follow soon. Default: it counts as healthy.
func WithHealthCheck(check func(context.Context) error) Option {
	return func(o *settings.Options) { o.Health = check; o.Require("WithHealthCheck", check != nil) }
}

// WithHealthThreshold sets how many checks of [WithHealthCheck] must fail in a row until the candidate counts as unhealthy, and about how
// many must succeed until it is healthy again: 1 to 1000. Default: 3.
func WithHealthThreshold(n int) Option {
	return func(o *settings.Options) { o.HealthThreshold = n }
}

// WithRelinquish has a leader hand over to another candidate by a schedule: after it has led for a duration such as "6h" (1 s or more),
// or at the times of a line of cron's five fields such as "0 4 * * *" or one of its words such as "@daily", in this host's time zone or
// one that the line names ("CRON_TZ=UTC 0 4 * * *"). Each time is put off at random by up to a tenth of the time since the last one, at
// most a minute. The leader first asks which candidates are ready, and chooses one of the highest priority; if none is ready it leads on
// until the next time. All candidates must know their connection. Default: it leads for as long as it can.
func WithRelinquish(schedule string) Option {
	return func(o *settings.Options) { o.Schedule, o.ScheduleErr = parseSchedule(schedule) }
}

// parseSchedule reads what WithRelinquish is given: a duration, or a line of cron.
func parseSchedule(spec string) (cron.Schedule, error) {
	if d, err := time.ParseDuration(spec); err == nil {
		if d < timing.MinTTL {
			return nil, validate.Errorf("WithRelinquish(%q) is too short: give at least %v", spec, timing.MinTTL)
		}
		return every(d), nil
	}
	if strings.Contains(spec, "=") && len(strings.Fields(spec)) == 1 { // at which the parser panics
		return nil, validate.Errorf("WithRelinquish(%q) is a time zone and no time: give five fields after it, such as %q", spec, "CRON_TZ=UTC 0 4 * * *")
	}
	s, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, validate.Errorf("WithRelinquish(%q): %w: give a duration such as %q, or five fields such as %q", spec, err, "6h", "0 4 * * *")
	}
	if s.Next(time.Now()).IsZero() {
		return nil, validate.Errorf("WithRelinquish(%q) never comes: give a date that exists", spec)
	}
	return s, nil
}

// every is a schedule without regard to the time of day.
type every time.Duration

// Next returns the time after one period.
func (d every) Next(now time.Time) time.Time { return now.Add(time.Duration(d)) }

// OnWon is called when leadership begins to count. It may take its time: see [Election] on callbacks. What goes on for as long as
// leadership lasts had better be the work of [Election.Run].
func OnWon(f func()) Option {
	return func(o *settings.Options) { o.OnWon = append(o.OnWon, f); o.Require("OnWon", f != nil) }
}

// OnLost is called when leadership that was announced by [OnWon] has ended, for whatever reason.
func OnLost(f func()) Option {
	return func(o *settings.Options) { o.OnLost = append(o.OnLost, f); o.Require("OnLost", f != nil) }
}

// OnCampaign is called for each campaign with the state in which it is made: each attempt of a candidate to win the key and each renewal
// of a leader or leader-elect. Calls that a slow callback leaves far behind are dropped.
func OnCampaign(f func(State)) Option {
	return func(o *settings.Options) {
		o.OnCampaign = append(o.OnCampaign, func(s core.State) { f(State(s)) })
		o.Require("OnCampaign", f != nil)
	}
}

// OnLeaderChange is called when the leader changes, this candidate included, and with the zero [Leader] when the key is read and nobody
// holds it. It reports only what was read from the bucket. A leader-elect is no leader yet. Of the changes that a slow callback leaves
// behind only the last is reported. The report may be a moment old: use it to find the leader, and never as a reason to do what only a
// leader may.
func OnLeaderChange(f func(Leader)) Option {
	return func(o *settings.Options) {
		o.OnLeader = append(o.OnLeader, func(h *settings.Holder) { f(leaderOf(h)) })
		o.Require("OnLeaderChange", f != nil)
	}
}

// OnNext is called with true when the leader's last record names this candidate as the one that takes over, so that it can prepare itself: load a state, warm
// a cache, open connections. It is called with false when that is over: another candidate is named or has won, or this one was paused, became unhealthy or
// stops. It is never called with false between such a record and a win, nor while this candidate holds the key: a candidate that leads after it was next sees
// true, OnWon, OnLost, false. Each true is followed by a false before Start returns.
//
// It is a hint and no promise. The next candidate may never lead, and another one may lead in its place, such as the target of a transfer, or one that is
// quicker because the next one is cut off. A leader names a candidate once it knows one, with its next renewal; for locks and slots it names nobody. The
// hint comes by notification, so a candidate that is not notified, or may not read, is told nothing. Anybody who may publish notifications can forge it.
func OnNext(f func(next bool)) Option {
	return func(o *settings.Options) { o.OnNext = append(o.OnNext, f); o.Require("OnNext", f != nil) }
}
