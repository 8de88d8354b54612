package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
)

const infoHelp = `Without KEY it describes the bucket and its replicas, the leader of each election, and what is wrong for elections, with the
fix. Its tests take some seconds where permissions are missing; nothing is written.

With --json that is one object: "bucket", "server", "created", "ttl_s", "history", "storage", "replicas", "markers_ttl_s"
(0 if expiries are not announced), "republish" (the subject), "bytes", "consumers", "cluster", "peers" (each "name",
"leader", "current", "offline", "lag", "seen_s"), "elections" (as ls has them), "paused" (the keys of paused elections) and
"findings" (each "code", "severity", "message", "fix").

With KEY it describes that election. With --json that is one object: "key", "bucket", and "leader", which is null or
an object: ` + holderHelp + `.

Times are by the server's clock, but "since" and "started" by the leader's. The exit code is 1 if nobody leads in the election
KEY or, without KEY, if elections do not work in this bucket or are not safe.`

// info is the command of that name.
type info struct {
	*tool
	key  string
	json bool
}

func registerInfo(app *fisk.Application, t *tool) {
	c := &info{tool: t}
	cmd := app.Command("info", "Describes the bucket, or one election").HelpLong(infoHelp).Action(action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cmd.Flag("json", "Write it as JSON").UnNegatableBoolVar(&c.json)
}

// run tells what is asked for.
func (c *info) run(ctx context.Context) error {
	if c.key != "" {
		if err := checkKey(c.key, false); err != nil {
			return err
		}
	}
	v, err := c.look(ctx, "info")
	if err != nil {
		return stopped(ctx, err)
	}
	defer v.nc.Close()
	if c.key == "" {
		return stopped(ctx, c.ofBucket(ctx, v))
	}
	return stopped(ctx, c.ofElection(ctx, v))
}

// ofElection tells about one election.
func (c *info) ofElection(ctx context.Context, v *view) error {
	leader, err := v.leader(ctx, c.key)
	nobody := errors.Is(err, election.ErrNoLeader)
	if err != nil && !nobody {
		return err
	}
	if c.json {
		err = writeJSON(c.stdout, found{Key: c.key, Bucket: v.bucket.Bucket(), Leader: leader})
	} else if !nobody {
		var paused []string
		if paused, err = v.paused(ctx); err == nil {
			err = c.showElection(v, leader, paused)
		}
	} else {
		err = nil
	}
	if err == nil && nobody {
		return nobodyLeads(v, c.key)
	}
	return err
}

// nobodyLeads is the verdict on a key that nobody holds.
func nobodyLeads(v *view, key string) *verdict {
	return &verdict{exitNegative, fmt.Sprintf("nobody leads %s in bucket %s on %s", key, v.bucket.Bucket(), v.server())}
}

// showElection tells about an election in words.
func (c *info) showElection(v *view, s *holder, paused []string) error {
	st := styleFor(c.stdout)
	if _, err := fmt.Fprintf(c.stdout, "%s\n\n", st.paint(bold, fmt.Sprintf("Election %s in bucket %s on %s", s.Key, v.bucket.Bucket(), v.server()))); err != nil {
		return err
	}
	state := s.State
	switch s.State {
	case standingLeaderElect:
		state += ": leadership does not count yet, but from the first renewal after the stand-down"
	case standingPlain:
		state += ": a bare name, which does not say whether leadership counts"
	}
	var lines sheet
	lines.add("Leader", s.Name)
	lines.add("State", state)
	lines.add("Since", s.since(v.clock.now()))
	if s.Term != 0 {
		lines.add("Term", termOf(s.Term))
	}
	lines.add("Token", s.Token)
	lines.add("Renewed", exactly(s.Renewed)+" ("+ago(s.age)+")")
	expires := "in " + human(s.left)
	if s.left < 0 {
		expires = human(-s.left) + " ago, and is about to be removed"
	}
	lines.add("Expires", exactly(s.Expires)+" ("+expires+")")
	lines.add("Host", s.Host)
	if s.PID != 0 {
		lines.add("Process", fmt.Sprint(s.PID))
	}
	lines.add("Instance", s.Instance)
	lines.add("Revision", termOf(s.Revision))
	if slices.Contains(paused, s.Key) {
		lines.add("Paused", "candidates do not campaign until 'election-cli resume "+s.Key+"'")
	}
	label := "Metadata"
	for _, k := range sortedKeys(s.Metadata) {
		lines.add(label, k+"="+s.Metadata[k])
		label = ""
	}
	return lines.writeTo(c.stdout, st)
}

// bucketInfo is what info tells about a bucket. Its field names are documented in the help and stay as they are.
type bucketInfo struct {
	Bucket     string          `json:"bucket"`
	Server     string          `json:"server"`
	Created    time.Time       `json:"created"`
	TTLS       float64         `json:"ttl_s"`
	History    int64           `json:"history"`
	Storage    string          `json:"storage"`
	Replicas   int             `json:"replicas"`
	MarkersTTL float64         `json:"markers_ttl_s"`
	Republish  string          `json:"republish,omitempty"`
	Bytes      uint64          `json:"bytes"`
	Consumers  int             `json:"consumers"`
	Cluster    string          `json:"cluster,omitempty"`
	Peers      []peer          `json:"peers"`
	Elections  []holder        `json:"elections"`
	Paused     []string        `json:"paused"`
	Findings   []admin.Finding `json:"findings"`
}

// peer is one server that keeps a replica.
type peer struct {
	Name    string   `json:"name"`
	Leader  bool     `json:"leader"`
	Current bool     `json:"current"`
	Offline bool     `json:"offline"`
	Lag     uint64   `json:"lag"`
	SeenS   *float64 `json:"seen_s,omitempty"` // how long ago the leader of the stream had an answer from it
}

// describe returns what the stream tells about the bucket.
func (v *view) describe() *bucketInfo {
	s := v.stream
	b := &bucketInfo{
		Bucket: v.bucket.Bucket(), Server: v.server(), Created: s.Created, TTLS: s.Config.MaxAge.Seconds(),
		History: s.Config.MaxMsgsPerSubject, Storage: strings.ToLower(s.Config.Storage.String()), Replicas: s.Config.Replicas,
		MarkersTTL: s.Config.SubjectDeleteMarkerTTL.Seconds(), Bytes: s.State.Bytes, Consumers: s.State.Consumers, Peers: []peer{},
	}
	if s.Config.RePublish != nil {
		b.Republish = printable(s.Config.RePublish.Destination)
	}
	if s.Cluster == nil {
		return b
	}
	b.Cluster = printable(s.Cluster.Name)
	if s.Cluster.Leader != "" {
		b.Peers = append(b.Peers, peer{Name: printable(s.Cluster.Leader), Leader: true, Current: true})
	}
	for _, r := range s.Cluster.Replicas {
		seen := roundMS(r.Active)
		b.Peers = append(b.Peers, peer{Name: printable(r.Name), Current: r.Current, Offline: r.Offline, Lag: r.Lag, SeenS: &seen})
	}
	slices.SortFunc(b.Peers, func(a, b peer) int { return strings.Compare(a.Name, b.Name) })
	return b
}

// findings returns the findings of the library but for those about this connection, on which no candidate campaigns.
func (v *view) findings(ctx context.Context) ([]admin.Finding, error) {
	all, err := admin.Check(ctx, v.bucket)
	if err != nil {
		return nil, err
	}
	findings := []admin.Finding{}
	for _, f := range all {
		if f.Code == "reconnect-buffer" || f.Code == "reconnects-limited" {
			continue
		}
		f.Message, f.Fix = printableUpTo(f.Message, longestValue), printableUpTo(f.Fix, longestValue)
		findings = append(findings, f)
	}
	return findings, nil
}
