package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/natscampaign/election/admin"
)

// ofBucket tells about the bucket.
func (c *info) ofBucket(ctx context.Context, v *view) error {
	b, err := v.report(ctx)
	if err != nil {
		return err
	}
	if c.json {
		err = writeJSON(c.stdout, b)
	} else if err = b.show(c.stdout, v); err == nil {
		err = writeFindings(c.stdout, styleFor(c.stdout), b.Findings, admin.SeverityWarning)
	}
	if err == nil && b.unfit() {
		return &verdict{code: exitNegative}
	}
	return err
}

// report tells all that there is to know about the bucket.
func (v *view) report(ctx context.Context) (b *bucketInfo, err error) {
	b = v.describe()
	if b.Findings, err = v.findings(ctx); err != nil {
		return nil, err
	}
	if err := v.refresh(ctx); err != nil { // the findings may have taken a while
		return nil, err
	}
	if b.Elections, err = v.leaders(ctx); err != nil {
		return nil, err
	}
	b.Paused, err = v.paused(ctx)
	return b, err
}

// unfit says whether elections do not work in the bucket, or are not safe.
func (b *bucketInfo) unfit() bool {
	return slices.ContainsFunc(b.Findings, func(f admin.Finding) bool { return f.Severity == admin.SeverityCritical })
}

// show tells about the bucket in words, but not what was found about it.
func (b *bucketInfo) show(w io.Writer, v *view) error {
	st := styleFor(w)
	if _, err := fmt.Fprintf(w, "%s\n\n", st.paint(bold, fmt.Sprintf("Bucket %s on %s", b.Bucket, b.Server))); err != nil {
		return err
	}
	lines := b.sheet(v)
	if err := lines.writeTo(w, st); err != nil {
		return err
	}
	if len(b.Elections) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return electionsGrid(v, b.Elections).writeTo(w)
}

// sheet returns what is told of the bucket itself.
func (b *bucketInfo) sheet(v *view) *sheet {
	lines := &sheet{}
	lines.add("Created", exactly(b.Created)+" ("+ago(v.clock.now().Sub(b.Created))+")")
	lines.add("TTL", v.ttl().String())
	lines.add("History", fmt.Sprint(b.History))
	lines.add("Storage", b.Storage)
	markers := "not announced"
	if b.MarkersTTL > 0 {
		markers = fmt.Sprintf("announced by markers, for %v each", seconds(b.MarkersTTL))
	}
	lines.add("Expiries", markers)
	republish := "not republished"
	if b.Republish != "" {
		republish = "republished on " + b.Republish
	}
	lines.add("Changes", republish)
	lines.add("Replicas", fmt.Sprint(b.Replicas))
	if b.Cluster != "" {
		lines.add("Cluster", b.Cluster)
		label := "Peers"
		for _, p := range b.Peers {
			lines.add(label, p.String())
			label = ""
		}
	}
	lines.add("Elections", fmt.Sprint(len(b.Elections)))
	if len(b.Paused) > 0 {
		lines.add("Paused", strings.Join(b.Paused, ", "))
	}
	lines.add("Size", plural(int(b.Bytes), "byte"))
	lines.add("Consumers", fmt.Sprint(b.Consumers))
	if v.clock.differs(clockBound) {
		lines.add("Clock", clockError(v.clock))
	}
	return lines
}

// String tells in words how a replica is.
func (p peer) String() string {
	var is []string
	switch {
	case p.Leader:
		is = append(is, "leads")
	case p.Offline:
		is = append(is, "offline")
	case p.Current:
		is = append(is, "current")
	default:
		is = append(is, "not current")
	}
	if p.Lag > 0 {
		is = append(is, fmt.Sprintf("%s behind", plural(int(p.Lag), "operation")))
	}
	if p.SeenS != nil {
		is = append(is, "seen "+ago(seconds(*p.SeenS)))
	}
	return p.Name + ": " + strings.Join(is, ", ")
}

// writeFindings writes the findings of at least some severity, with the fix of what is wrong.
func writeFindings(w io.Writer, st style, findings []admin.Finding, least admin.Severity) error {
	for _, f := range findings {
		if f.Severity < least {
			continue
		}
		colour := faint
		switch f.Severity {
		case admin.SeverityCritical:
			colour = red
		case admin.SeverityWarning:
			colour = yellow
		}
		if _, err := fmt.Fprintf(w, "\n%s  %s: %s\n", st.paint(colour, fmt.Sprintf("%-8s", f.Severity)), f.Code, f.Message); err != nil {
			return err
		}
		if f.Fix != "" && f.Severity > admin.SeverityInfo {
			if _, err := fmt.Fprintf(w, "          Fix: %s\n", f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
