package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/chaos"
)

const processHelp = `With --processes every candidate is a process of its own, and so is each of three servers of a cluster that keep the
bucket in files: R3, or on one of them with --replicas 1. Faults are injected from a seed for the time that --for gives, one after the other with somebody
leading in between, or at the rate of --every. They are, for --fault:

    kill             a candidate gets SIGKILL, and starts again
    stop             a candidate gets SIGSTOP, for longer than the TTL, and then SIGCONT
    cut              a candidate's link is cut both ways; what was sent is lost, or arrives when the link is healed
    one-way          its requests are lost, or its replies held until the link is healed
    delay            its replies come later than the TTL
    handover         a candidate leaves in order, and starts again
    evict            an operator deletes or overwrites the key
    revoke           a candidate's user loses permission to read the key, to read the stream's info, to subscribe to the
                     bucket's changes and to requests, or all of these, because the servers reload their configuration;
                     permission is restored after longer than the TTL, and permission to write the key is never revoked
    forge            a stranger with permission to publish where the bucket republishes what it commits, and for nothing
                     else, publishes 200 changes a second that nobody made: releases, expiries, deletions, renewals by
                     candidates that do not exist, records of a later bucket, and genuine changes again
    step-down        the leader of the bucket's stream steps down, which is left out with --replicas 1
    rewind           with --replicas 1 only: the server that has the bucket gets SIGKILL just after a renewal, and starts again
                     with an older copy of the bucket, in which that renewal is missing, or a change of leader and more
                     than a TTL; with more replicas the other ones would have what is missing
    kill-server      a server gets SIGKILL, and starts again
    restart-servers  all servers are restarted in order, one after the other
    lose-quorum      two of three servers get SIGKILL, and start again

Each candidate checks every 2 ms whether it leads, and records the answers by the machine's one clock. As leader it appends
numbered records to a stream. Each record requires that the record before it is the leader's own or, for the first of a term,
of an earlier term, so that a late record of a deposed leader is refused, and counted as fenced. The exit code is 1 if two
candidates considered themselves leader at once, if one did although there was a record of a later term, if there were terms
but no records, if records or terms were out of order, if nobody led in time, or if the leader changed although its lease
could have been renewed: for half of the time between when a renewal was due and its deadline the leader was unharmed, its
link was whole, and the bucket, which the drill writes to as a test, took writes. If a candidate or the cluster breaks down
by itself, the results until then are shown, histories and logs are kept, and the exit code is 2, or 1 as above.

After a fault somebody must lead within the TTL, 0.4 s for a server that is late to expire the key, 1 s for the answers of
notified candidates, and the stand-down; within 1 s if the leader left in order and no replies get lost at random; one
campaign interval later than that if the leader could still send, because then it renews once more without knowing; after an
outage of the bucket one interval and 1 s later, counted from its end, because candidates reconnect first; and one TTL later
than that within three TTLs of a forge, because candidates that were misled read the key once per TTL.

Neither a forge nor a revoke excuses a change of leader: a forged change must change nothing, and a leader with permission to
write leads on. With --every or --lose-replies a revoke does, because a leader that may not read cannot know whether a write
whose reply was lost was its own.

After a rewind numbers of terms come again, as revisions do. Terms and records are in order then if all that were won after
a rewind come after all that were won before it; smaller numbers are counted apart. A leader stands down at once when it can
know of the rewind: by the answer to its next renewal, 0.25 s after that was due, or 1 s after the server is there again,
or its link is whole. Two leaders at once before that, which no lease prevents, are counted apart; after that they fail the
drill.

With --json the result is one object: "ttl_s", "stand_down_s", "candidates", "servers", "seed", "every_s",
"lose_replies", "duration_s", "server_version"; "replicas", of the bucket; "faults", a list of "kind", "count", "failover_s" (how long it took
until somebody led, for each time that nobody did) and "bound_s"; "overlap_ms", "overtaken" (how often a candidate
considered itself leader although there was a record of a later term), "samples", "rewind_overlap_ms", "rewind_overtaken" (the same before a leader could know of a rewind), "longest_pause_ms" (between two answers of one candidate that
was not stopped), "records", "records_out_of_order", "fenced", "replies_lost", "terms", "terms_out_of_order",
"rewind_terms_set_back" (terms with a number that is not larger than those of all before because of a rewind),
"changes" of leader, each with "at_s", "from", "to", "term", "reason", "cause" and "unneeded", "unneeded_changes"
(their number), "longest_without_leader_s", "late" (what took longer than it may, with "at_s", "kind", "took_s" and
"bound_s"), "outages_s" (in which the bucket could not be written) and "kept" (where histories and logs are).`

// processFlags are the flags of a drill on processes.
type processFlags struct {
	chaos.Config
	on   bool
	loss string // the rate, as it is given

	set map[string]*bool // whether the user set a flag that is for such drills only, or for others only
}

func (p *processFlags) register(cmd *fisk.CmdClause) {
	p.set = map[string]*bool{}
	noted := func(f *fisk.FlagClause, name string) *fisk.FlagClause {
		p.set[name] = new(bool)
		return f.IsSetByUser(p.set[name])
	}
	flag := func(name, help string) *fisk.FlagClause { return noted(cmd.Flag(name, help), name) }
	cmd.Flag("processes", "Inject faults into processes of their own, candidates and a cluster of three servers").UnNegatableBoolVar(&p.on)
	flag("for", "With --processes: how long").Default(chaos.DefaultLength.String()).DurationVar(&p.Length)
	flag("fault", "With --processes: a kind of fault to inject, repeatable (default all)").PlaceHolder("KIND").EnumsVar(&p.Faults, chaos.FaultNames()...)
	flag("every", "With --processes: inject a fault at this rate, whether somebody leads or not").PlaceHolder("DURATION").DurationVar(&p.Every)
	flag("lose-replies", "With --processes: how many replies get lost at all times, such as 1%").Default("0%").StringVar(&p.loss)
	flag("stand-down", "With --processes: stand-down of the candidates (default 0.75 of the TTL)").PlaceHolder("DURATION").DurationVar(&p.StandDown)
	flag("seed", "With --processes: seed of the script of faults (default a new one)").PlaceHolder("N").Uint64Var(&p.Seed)
	flag("keep", "With --processes: keep histories and logs").UnNegatableBoolVar(&p.Keep)
}

// check finds what is wrong with the flags, and settles those that were left open.
func (p *processFlags) check() error {
	var problems []error
	if !p.on {
		for _, name := range []string{"for", "fault", "every", "lose-replies", "stand-down", "seed", "keep"} {
			if *p.set[name] {
				problems = append(problems, fmt.Errorf("--%s is for drills on processes: give --processes too, or leave it out", name))
			}
		}
		return errors.Join(problems...)
	}
	if *p.set["every"] && p.Every < 500*time.Millisecond {
		problems = append(problems, fmt.Errorf("--every %v: give at least 500ms, or leave it out to wait for a leader after each fault", p.Every))
	}
	if !*p.set["stand-down"] {
		p.StandDown = p.TTL * 3 / 4
	}
	var err error
	if p.Rate, err = parseRate(p.loss); err != nil {
		problems = append(problems, fmt.Errorf("--lose-replies %s: %w", p.loss, err))
	}
	if !*p.set["seed"] {
		p.Seed = rand.Uint64N(1_000_000)
	}
	return errors.Join(append(problems, p.Config.Check())...)
}

// parseRate reads a part of all, such as 1% or 0.01.
func parseRate(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	rate, err := strconv.ParseFloat(number, 64)
	if percent {
		rate /= 100
	}
	if err != nil || !(rate >= 0 && rate <= 0.5) {
		return 0, errors.New("give a part of all replies from 0% to 50%, such as 1%")
	}
	return rate, nil
}
