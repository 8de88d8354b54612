package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/timeutil"
)

// evaluate reads and checks the histories, and returns the report and the timeline. With sessions the timeline shows the first of their keys.
func (d *Drill) evaluate(outages []history.Span, records []history.Record) (*Report, *timeline.Timeline, error) {
	r := &Report{
		Result: drill.Result{
			TTL: d.TTL.Seconds(), Candidates: d.Candidates, DurationS: terminal.ToSeconds(d.ended - d.began), ServerVersion: d.version,
			Faults: []drill.Fault{},
		},
		StandDown: d.StandDown.Seconds(), Servers: processes.ClusterSize, Keys: d.Sessions, Replicas: d.Replicas, Seed: d.Seed, Every: d.Interval.Seconds(), LoseReplies: d.ReplyLoss,
		Late: []lateResult{}, Changes: []changeResult{}, Outages: []float64{}, wall: d.wall,
	}
	histories := make([][]*history.Candidate, len(d.keys())) // by key
	for _, c := range d.fleet {
		all, err := c.ReadHistory(host.Clock())
		if err != nil {
			return nil, nil, err
		}
		for n, h := range all {
			histories[n] = append(histories[n], h)
			r.Fenced += h.Fenced
		}
		r.Samples += all[0].Samples
		r.Requests = max(r.Requests, all[0].Requests)
		r.RepliesLost += c.Link.RepliesLost.Load()
	}
	d.injected = slices.DeleteFunc(d.injected, func(f *fault) bool { return f.skipped })
	for _, o := range outages {
		r.Outages = append(r.Outages, terminal.ToSeconds(o.To-o.From))
	}
	stops := slices.DeleteFunc(d.historyFaults(""), func(f history.Fault) bool { return f.Kind != "stop" })
	for _, h := range histories[0] {
		r.LongestGap = max(r.LongestGap, timeutil.Seconds(h.LongestPause(stops).Round(time.Microsecond)))
	}
	var first *history.Findings
	var gaps []history.Gap
	for n, key := range d.keys() {
		run := d.runOf(key, histories[n], outages, records)
		r.RepeatedTerms += orderTermsByRewinds(run)
		found := run.Check()
		before := len(r.violations)
		r.addFindings(run, found)
		gaps = append(gaps, found.Gaps...)
		if n == 0 {
			first = found
		}
		for i := before; i < len(r.violations); i++ {
			v := &r.violations[i]
			if v.at > 0 && i < maxExplained {
				v.nearby = d.eventsNear(run, v.at)
			}
			if key != "" {
				v.text = key + ": " + v.text
			}
		}
	}
	r.addFaultResults(d, gaps)
	return r, d.timeline(r, histories[0], outages, first), nil
}

// runOf returns the evidence on a key.
func (d *Drill) runOf(key string, histories []*history.Candidate, outages []history.Span, records []history.Record) *history.Run {
	run := &history.Run{Timing: d.timing(), From: d.began, To: d.ended, Outages: outages, Faults: d.historyFaults(key)}
	for _, h := range histories {
		run.Beliefs = append(run.Beliefs, h.Beliefs...)
		run.Works = append(run.Works, h.Works...)
		run.Overtaken = append(run.Overtaken, h.Overtaken...)
	}
	for _, x := range records {
		if x.Key == key {
			run.Records = append(run.Records, x)
		}
	}
	for _, f := range d.injected {
		if f.name == "forge" {
			run.Forged = append(run.Forged, f.span)
		}
		if key != "" && f.servers != nil && f.lanes&laneServers != 0 { // only servers that know who leads the cluster make the consumer of a session
			run.Repairs = append(run.Repairs, f.span)
		}
	}
	return run
}

// historyFaults returns the faults that concern a key, as [history.Run.Check] needs them.
func (d *Drill) historyFaults(key string) (all []history.Fault) {
	for _, f := range d.injected {
		if f.key != "" && f.key != key {
			continue
		}
		if f.keepsLeader && (f.candidate == nil || d.ReplyLoss == 0 && d.Interval == 0) {
			continue // it excuses no change of leader, except while replies may get lost: then a leader has to read to learn the outcome of its write
		}
		x := f.historyFault()
		// A successor that lost the reply to its acquisition waits for the stand-down all the same; so does one that knows of later writes than the release,
		// because that may be one of those to which the history went back.
		x.Releases = x.Releases && d.ReplyLoss == 0 && !d.wasRewound(f.span.From) && !d.sessionsReadAnew(f.span.From)
		all = append(all, x)
		if f.name == Rewind && d.Sessions > 0 { // it ends the sessions of all candidates
			for _, c := range d.fleet {
				if x.Candidate = c.Name; c != f.candidate {
					all = append(all, x)
				}
			}
		}
	}
	return all
}

// rewoundFor is for how many TTLs after a rewind candidates may know of later writes than there are. A rewind takes back those of less.
const rewoundFor = 4

// wasRewound reports whether the bucket forgot writes shortly before the given time.
func (d *Drill) wasRewound(at time.Duration) bool {
	return slices.ContainsFunc(d.injected, func(f *fault) bool {
		return f.name == Rewind && f.span.From < at && at < f.span.From+rewoundFor*d.timing().TTL
	})
}

// sessionsReadAnew reports whether a fault ended less than two TTLs before the given time, or lasts. A session that has read everything anew since
// waits for a lease where it does not know whether an earlier leader still leads.
func (d *Drill) sessionsReadAnew(at time.Duration) bool {
	return d.Sessions > 0 && slices.ContainsFunc(d.injected, func(f *fault) bool { return f.span.From < at && at < f.span.To+2*d.TTL })
}

// historyFault returns the fault as [history.Run.Check] needs it.
func (f *fault) historyFault() history.Fault {
	x := history.Fault{Kind: f.name, Ends: f.endsTerm, Releases: f.name == "handover" || f.name == "transfer", Renews: f.requestsArrive, Span: f.span}
	if f.candidate != nil {
		x.Candidate = f.candidate.Name
	}
	return x
}

// addFindings adds the results of the check to the report.
func (r *Report) addFindings(run *history.Run, found *history.Findings) {
	at := func(t time.Duration) float64 { return terminal.ToSeconds(t - run.From) }
	overlap, overlaps, rewindOverlap := separateRewindOverlaps(run, found.Overlaps)
	overtaken, rewindOvertaken := separateRewindOvertakings(run)
	r.Overlap += drill.RoundUp(overlap)
	r.RewindOverlap += drill.RoundUp(rewindOverlap)
	r.Overtaken += len(overtaken)
	r.RewindOvertaken += rewindOvertaken
	for _, x := range run.Records {
		if !processes.IsRewindMarker(x) {
			r.Records++
		}
	}
	r.Terms += len(run.Beliefs)
	r.TermsOutOfOrder += len(found.Disorder)
	r.OutOfOrder += len(found.Misplaced)
	for _, o := range overtaken {
		r.addViolation(o.At, "at %.3f s %s considered itself leader in term %d although the stream had a record with token %s", at(o.At), o.Candidate, o.Term, o.Later)
	}
	for _, o := range overlaps {
		r.addViolation(o.From, "at %.3f s %s (term %d) and %s (term %d) led at once for %v", at(o.From), o.A.Candidate, o.A.Term, o.B.Candidate, o.B.Term, o.To-o.From)
	}
	worked, works, _ := separateRewindOverlaps(run, found.Worked)
	r.WorkOverlap += drill.RoundUp(worked)
	for _, o := range works {
		r.addViolation(o.From, "at %.3f s the work of %s (term %d) and of %s (term %d) ran at once for %v", at(o.From), o.A.Candidate, o.A.Term, o.B.Candidate, o.B.Term, o.To-o.From)
	}
	for _, text := range slices.Concat(found.Disorder, found.Misplaced[:min(len(found.Misplaced), 10)]) {
		r.addViolation(0, "%s", text)
	}
	for _, c := range found.Changes {
		r.Changes = append(r.Changes, changeResult{
			At: at(c.At), From: c.Old.Candidate, To: c.New.Candidate, Term: c.New.Term, Reason: c.Old.Reason, Cause: c.Cause, Unneeded: c.Unneeded,
		})
		if c.Unneeded {
			r.Unneeded++
			r.addViolation(c.At, "at %.3f s %s lost term %d (%s) although its lease could have been renewed until %.3f s", at(c.At), c.Old.Candidate, c.Old.Term, c.Old.Reason, at(c.Old.Deadline))
		}
	}
	for _, g := range found.Gaps {
		r.LongestWithout = max(r.LongestWithout, terminal.ToSeconds(g.To-g.From))
		if g.Late() {
			r.Late = append(r.Late, lateResult{drill.Late{At: at(g.From), Kind: g.Kind, Bound: g.Bound.Seconds()}, terminal.ToSeconds(g.Took())})
			r.addViolation(g.To, "no candidate led from %.3f s to %.3f s; cause: %s; took %s, limit %s", at(g.From), at(g.To), g.Kind, terminal.FormatDuration(g.Took()), terminal.FormatDuration(g.Bound))
		}
	}
}

func (r *Report) addViolation(at time.Duration, format string, a ...any) {
	r.violations = append(r.violations, violation{at: at, text: fmt.Sprintf(format, a...)})
}

// addFaultResults adds the failovers of each kind of fault to the report, and of the causes that are no faults.
func (r *Report) addFaultResults(d *Drill, gaps []history.Gap) {
	add := func(kind, description string, count int) {
		x := drill.Fault{Kind: kind, Count: count, Failover: []float64{}, Description: description}
		for _, g := range gaps {
			if g.Kind == kind {
				x.Failover = append(x.Failover, terminal.ToSeconds(g.Took()))
				x.Bound = max(x.Bound, g.Bound.Seconds())
			}
		}
		if count > 0 || len(x.Failover) > 0 {
			r.Faults = append(r.Faults, x)
		}
	}
	add(history.KindStart, "first election", 1)
	for _, k := range faultKinds {
		count := 0
		for _, f := range d.injected {
			if f.name == k.name {
				count++
			}
		}
		add(k.name, k.description, count)
	}
	add(history.KindOutage, "bucket rejected writes", 0)
	add(history.KindNone, "no cause found", 0)
}
