package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// bucketReport is what there is to know about a bucket. Its field names are documented in the help and stay as they are.
type bucketReport struct {
	Bucket    string             `json:"bucket"`
	Server    string             `json:"server"`
	TTLS      float64            `json:"ttl_s"`
	Replicas  int                `json:"replicas"`
	Storage   string             `json:"storage"`
	History   int64              `json:"history"`
	MarkersS  float64            `json:"markers_s"`
	Republish string             `json:"republish"`
	Created   time.Time          `json:"created"`
	Keys      uint64             `json:"keys"`
	Bytes     uint64             `json:"bytes"`
	Cluster   *clusterReport     `json:"cluster,omitempty"`
	Findings  []election.Finding `json:"findings"`
}

// clusterReport is how the replicas of a bucket are.
type clusterReport struct {
	Name   string       `json:"name"`
	Leader string       `json:"leader"`
	Peers  []peerReport `json:"peers"`
}

type peerReport struct {
	Name    string  `json:"name"`
	Current bool    `json:"current"`
	Offline bool    `json:"offline"`
	Lag     uint64  `json:"lag"`
	SeenS   float64 `json:"seen_s"`
}

// checkPatience is how long an inspection may take: what is not permitted is never answered.
const checkPatience = 20 * time.Second

// describeBucket looks at a bucket and has it checked.
func describeBucket(ctx context.Context, s *session, bucket jetstream.KeyValue) (bucketReport, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	r := bucketReport{Bucket: bucket.Bucket(), Server: s.server()}
	status, err := bucket.Status(ctx)
	if err != nil {
		return r, fmt.Errorf("bucket %q on %s cannot be read: %w", r.Bucket, r.Server, err)
	}
	cfg := status.Config()
	r.TTLS, r.History, r.Storage, r.Replicas = status.TTL().Seconds(), status.History(), storageName(cfg.Storage), cfg.Replicas
	r.MarkersS, r.Keys, r.Bytes = status.LimitMarkerTTL().Seconds(), status.Values(), status.Bytes()
	if cfg.RePublish != nil {
		r.Republish = printable(cfg.RePublish.Destination)
	}
	if told, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo }); ok && told.StreamInfo() != nil {
		r.Created, r.Cluster = told.StreamInfo().Created, describeCluster(told.StreamInfo().Cluster)
	}
	findings, err := election.Check(ctx, bucket, election.WithJetStream(s.js))
	if err != nil {
		return r, err
	}
	r.Findings = slices.DeleteFunc(findings, func(f election.Finding) bool {
		return f.Code == "reconnect-buffer" || f.Code == "reconnects-limited" // this connection's, with which nobody stands
	})
	for i, f := range r.Findings {
		r.Findings[i].Message, r.Findings[i].Remedy = printableUpTo(f.Message, longestValue), printableUpTo(f.Remedy, longestValue)
	}
	return r, nil
}

func describeCluster(c *jetstream.ClusterInfo) *clusterReport {
	if c == nil || c.Name == "" {
		return nil
	}
	r := &clusterReport{Name: printable(c.Name), Leader: printable(c.Leader), Peers: []peerReport{}}
	for _, p := range c.Replicas {
		r.Peers = append(r.Peers, peerReport{Name: printable(p.Name), Current: p.Current, Offline: p.Offline, Lag: p.Lag, SeenS: p.Active.Seconds()})
	}
	return r
}

// worst returns the severity of the worst finding.
func (r bucketReport) worst() election.Severity {
	worst := election.SeverityInfo
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// print writes what the bucket is for people. What is found about it is complain's.
func (r bucketReport) print(w io.Writer, s style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", s.paint(bold, fmt.Sprintf("Bucket %s on %s", r.Bucket, r.Server)))
	line := func(what, format string, a ...any) {
		fmt.Fprintf(&b, "  %s  %s\n", s.paint(faint, fmt.Sprintf("%-10s", what)), fmt.Sprintf(format, a...))
	}
	line("TTL", "%s", seconds(r.TTLS))
	line("Replicas", "%d", r.Replicas)
	line("Storage", "%s", r.Storage)
	line("History", "%d", r.History)
	if r.MarkersS > 0 {
		line("Expiries", "announced, by markers that last %s", seconds(r.MarkersS))
	} else {
		line("Expiries", "not announced")
	}
	if r.Republish != "" {
		line("Changes", "republished on %s", r.Republish)
	} else {
		line("Changes", "not republished")
	}
	if !r.Created.IsZero() {
		line("Created", "%s (%s)", exactly(r.Created), ago(time.Since(r.Created)))
	}
	line("Holds", "%s, %s", plural(int(r.Keys), "key"), plural(int(r.Bytes), "byte"))
	if c := r.Cluster; c != nil {
		line("Cluster", "%s, led by %s", c.Name, cmp.Or(c.Leader, "nobody"))
		for _, p := range c.Peers {
			line("", "%s %s", p.Name, p.state())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// state says how a replica is.
func (p peerReport) state() string {
	seen := "seen " + ago(seconds(p.SeenS))
	switch {
	case p.Offline:
		return "is offline, " + seen
	case p.Lag > 0:
		return fmt.Sprintf("lags by %s, %s", plural(int(p.Lag), "operation"), seen)
	case !p.Current:
		return "is not current, " + seen
	}
	return "is current, " + seen
}

// complain writes the findings of that severity and worse for people.
func (r bucketReport) complain(w io.Writer, s style, least election.Severity) error {
	var b strings.Builder
	colours := map[election.Severity]string{election.SeverityCritical: bold + ";" + red, election.SeverityWarning: yellow, election.SeverityInfo: faint}
	for _, f := range r.Findings {
		if f.Severity < least {
			continue
		}
		fmt.Fprintf(&b, "\n%s  %s: %s\n", s.paint(colours[f.Severity], fmt.Sprintf("%-8s", f.Severity)), f.Code, f.Message)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "          %s %s\n", s.paint(faint, "way out:"), f.Remedy)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
