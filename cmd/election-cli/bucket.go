package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/observe"
)

const (
	bucketAddHelp = `The bucket has a history of 1 and the TTL. The server writes expiry markers, unless the bucket is --choria-compatible, and
republishes each change, which notifies candidates of a vacancy at no cost. Warnings about the bucket go to stderr.

Example: election-cli bucket add --ttl 10s

Without --replicas the bucket has three replicas where the server belongs to a cluster with room for them, and one elsewhere. Where a
cluster refuses three, the command says why.

If the bucket exists with this configuration, the command says so, and the exit code is 0. It then adds to a bucket that an earlier
version or another tool made: the time of creation, which some servers change, and that roll-ups are refused where the server lets
it. If the configuration differs, the command lists each difference and changes nothing, and the exit code is 2: 'bucket edit' changes
it.

With --json the result is one object: "made" (false if the bucket existed), and all fields of 'info --json'.`

	bucketEditHelp = `The command sets what elections need: a TTL, a history of 1, expiry markers, changes that are republished, and all that 'check' and
'info' find wrong with the settings. It lists each change; --dry-run only lists them. Candidates go on, and a leader leads on.

Example: election-cli bucket edit --bucket TEST_ELECTION --dry-run

A bucket without a usable TTL gets the TTL that it had, if that is known from its metadata or its leaders, or 15s. Replicas and the
limit of bytes stay as they are without their flags. Expiry markers cannot be removed again: if candidates of Choria campaign in the
bucket, give --choria-compatible, unless it was made with it.

The command refuses, with exit code 2, what could lose data or make two leaders: a bucket with keys that are no elections, a bucket
for sessions, whose claims would expire, and a TTL that is shorter than the lease of a leader. If the bucket is fit, it says so, and the exit code is 0.

With --json the result is one object: "bucket", "changed" (false with --dry-run, and if the bucket was fit), and "changes" (each with
"setting", "before", "after").`

	bucketPruneHelp = `The command lists the elections that ended longer ago than --older-than, asks, and forgets them: each takes one small message in the
bucket until then. 'ls --ended' does not list them any more, and the next winner stands down as for the very first election. An election
that somebody leads is not touched, also if somebody wins meanwhile. Locks, slots and elections that a crash ended leave nothing to forget.

Example: election-cli bucket prune --older-than 720h

The exit code is 1 if you answered no. With --json the result is one object: "bucket", and "forgotten" (an array of events, as in
'ls --ended --json'); with --dry-run these are the elections that would be forgotten.`

	bucketRmHelp = `The command says how many elections in the bucket have a leader, and how many sessions are open in a bucket for sessions, and asks before it removes the bucket. Those leaders are not
notified: they notice within the TTL. Until then, another candidate may lead the same election in a new bucket of that name. Stop
the leaders first.

Example: election-cli bucket rm --bucket TEST_ELECTION

The exit code is 1 if there is no such bucket, or if you answered no. The command does not remove a bucket without a TTL in
which nothing, or not everything, shows that it is for elections.`
)

// bucketCommand implements the subcommands of bucket.
type bucketCommand struct {
	*cli.Env
	ttl              time.Duration
	ttlSet           bool
	replicas         int
	replicasSet      bool
	storage          string
	maxBytes         int64
	choriaCompatible bool
	olderThan        time.Duration
	dryRun           bool
	force            bool
	json             bool
	wide             bool
}

func registerBucket(app *fisk.Application, env *cli.Env) {
	b := &bucketCommand{Env: env}
	cmd := app.Command("bucket", "Creates, changes, describes, prunes and removes the bucket that --bucket names")

	add := cmd.Command("add", "Creates a bucket for elections").HelpLong(bucketAddHelp).Action(cli.Request(b.add))
	cli.DurationVar(add.Flag("ttl", "Length of a lease: the shorter, the sooner a crashed leader is replaced").Default(timing.DefaultTTL.String()), &b.ttl)
	cli.IntVar(add.Flag("replicas", "Number of replicas in a cluster: 1, 3 or 5 (default 3 where there is room for them, else 1)").IsSetByUser(&b.replicasSet), &b.replicas, 3)
	cli.EnumVar(add.Flag("storage", "Storage: file, or memory, which loses the term numbers when the servers restart").Default("file"), &b.storage, "file", "memory")
	cli.BytesVar(add.Flag("max-bytes", "Most that the bucket stores, which some accounts demand: 1M holds 500 elections"), &b.maxBytes)
	add.Flag("choria-compatible", "Let candidates of Choria campaign in the bucket too; then there are no expiry markers").UnNegatableBoolVar(&b.choriaCompatible)
	cli.JSONVar(add, "Write the result as JSON", &b.json)
	cli.WideVar(add, &b.wide)

	edit := cmd.Command("edit", "Changes the bucket into one that is fit for elections").HelpLong(bucketEditHelp).Action(cli.Request(b.edit))
	cli.DurationVar(edit.Flag("ttl", "Length of a lease (default that of the bucket)").IsSetByUser(&b.ttlSet), &b.ttl)
	cli.IntVar(edit.Flag("replicas", "Number of replicas in a cluster: 1, 3 or 5 (default as many as now)").IsSetByUser(&b.replicasSet), &b.replicas, 3)
	cli.BytesVar(edit.Flag("max-bytes", "Most that the bucket stores: 1M holds 500 elections (default as now)"), &b.maxBytes)
	edit.Flag("choria-compatible", "Let candidates of Choria campaign in the bucket: add no expiry markers").UnNegatableBoolVar(&b.choriaCompatible)
	edit.Flag("dry-run", "List what would change, and change nothing").UnNegatableBoolVar(&b.dryRun)
	cli.JSONVar(edit, "Write the result as JSON", &b.json)

	info := &infoCommand{Env: env}
	show := cmd.Command("info", "Describes the bucket, like info").HelpLong(bucketInfoHelp).Action(cli.Request(info.run))
	cli.JSONVar(show, "Write the result as JSON", &info.json)
	cli.WideVar(show, &info.wide)

	prune := cmd.Command("prune", "Forgets elections that have ended").HelpLong(bucketPruneHelp).Action(cli.Request(b.prune))
	cli.DurationVar(prune.Flag("older-than", "Forget only elections that ended longer ago").Required(), &b.olderThan)
	prune.Flag("dry-run", "List what would be forgotten, and forget nothing").UnNegatableBoolVar(&b.dryRun)
	cli.ForceVar(prune, "Do not ask", &b.force)
	cli.JSONVar(prune, "Write the result as JSON", &b.json)

	rm := cmd.Command("rm", "Removes the bucket and all elections in it").HelpLong(bucketRmHelp).Action(cli.Request(b.rm))
	cli.ForceVar(rm, "Do not ask", &b.force)
}

// bucketAddReport is the result of bucket add in the JSON output.
type bucketAddReport struct {
	Made bool `json:"made"`
	*look.BucketInfo
}

// bucketEditReport is the result of bucket edit in the JSON output.
type bucketEditReport struct {
	Bucket  string         `json:"bucket"`
	Changed bool           `json:"changed"`
	Changes []bucketChange `json:"changes"`
}

// bucketChange is a setting of the bucket before and after the change.
type bucketChange struct {
	Setting string `json:"setting"`
	Before  string `json:"before"`
	After   string `json:"after"`
}

// write writes the changes, a line each unless as JSON.
func (r *bucketEditReport) write(b *bucketCommand) error {
	if b.json {
		return terminal.WriteJSON(b.Stdout, r)
	}
	for _, c := range r.Changes {
		if _, err := fmt.Fprintf(b.Stdout, "%s: %s -> %s\n", terminal.Printable(c.Setting), terminal.Printable(c.Before), terminal.Printable(c.After)); err != nil {
			return err
		}
	}
	return nil
}

// config returns the configuration that the flags describe.
func (b *bucketCommand) config() (election.BucketConfig, error) {
	c := election.BucketConfig{Name: b.Bucket, TTL: b.ttl, Replicas: b.replicas, MaxBytes: b.maxBytes, ChoriaCompatible: b.choriaCompatible}
	if b.storage == "memory" {
		c.Storage = jetstream.MemoryStorage
	}
	var problems cli.Problems
	if b.ttl != 0 || b.ttlSet {
		problems.Add(cli.CheckTTL(b.ttl))
	}
	problems.If(b.replicasSet && b.replicas != 1 && b.replicas != 3 && b.replicas != 5, "--replicas %d: give 1, 3 or 5", b.replicas)
	return c, problems.Err()
}

// add creates the bucket, or reports that it exists.
func (b *bucketCommand) add(ctx context.Context) error {
	config, err := b.config()
	if err != nil {
		return err
	}
	client, err := b.Connect("bucket add")
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	bucket, err := client.EnsureBucket(ctx, config)
	if err != nil {
		return err
	}
	v, info, err := inspect(ctx, client, bucket.Bucket)
	if err != nil {
		return err
	}
	if b.json {
		err = terminal.WriteJSON(b.Stdout, bucketAddReport{bucket.Created, info})
	} else {
		err = info.Print(b.Stdout, terminal.StyleFor(b.Stdout).Wide(b.wide), v)
	}
	outcome := "created"
	if !bucket.Created {
		outcome = "exists with this configuration"
	}
	fmt.Fprintf(b.Stderr, "Bucket %q %s\n", info.Bucket, outcome)
	if bucket.Refusal != nil && !kv.IsOnItsOwn(bucket.Refusal) {
		fmt.Fprintf(b.Stderr, "It has one replica: while its server is away, nobody leads for long. Three were refused: %v\n", bucket.Refusal)
	}
	fmt.Fprint(b.Stderr, look.FindingsText(terminal.StyleFor(b.Stderr), info.Findings, admin.SeverityWarning))
	return err
}

// edit changes the bucket, or reports what it would change.
func (b *bucketCommand) edit(ctx context.Context) error {
	config, err := b.config()
	if err != nil {
		return err
	}
	client, err := b.Connect("bucket edit")
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	bucket, changes, err := client.EditBucket(ctx, config, b.dryRun)
	if err != nil {
		return err
	}
	report := bucketEditReport{Bucket: b.Bucket, Changed: !b.dryRun && len(changes) > 0, Changes: []bucketChange{}}
	for _, c := range changes {
		report.Changes = append(report.Changes, bucketChange{c.Setting, c.Has, c.Want})
	}
	if err := report.write(b); err != nil {
		return err
	}
	outcome := "changed"
	switch {
	case len(changes) == 0:
		outcome = "is as it should be: nothing was changed"
	case b.dryRun:
		outcome = "would be changed so: nothing was changed"
	}
	fmt.Fprintf(b.Stderr, "Bucket %q %s\n", b.Bucket, outcome)
	if b.dryRun {
		return nil
	}
	_, info, err := inspect(ctx, client, bucket)
	if err != nil {
		return err
	}
	fmt.Fprint(b.Stderr, look.FindingsText(terminal.StyleFor(b.Stderr), info.Findings, admin.SeverityWarning))
	return nil
}

// inspect looks at the bucket after a change.
func inspect(ctx context.Context, client *cli.Client, bucket *election.Bucket) (*look.View, *look.BucketInfo, error) {
	v, err := look.New(ctx, client, bucket)
	if err != nil {
		return nil, nil, err
	}
	info, err := v.BucketInfo(ctx)
	return v, info, err
}

// bucketPruneReport is the result of bucket prune in the JSON output.
type bucketPruneReport struct {
	Bucket    string          `json:"bucket"`
	Forgotten []observe.Event `json:"forgotten"`
}

// prune asks, and forgets elections that have ended.
func (b *bucketCommand) prune(ctx context.Context) error {
	if b.olderThan < 0 {
		return fmt.Errorf("--older-than %v: give a positive duration, such as 720h", b.olderThan)
	}
	v, err := look.Open(ctx, b.Env, "bucket prune")
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	if v.ForSessions() {
		return fmt.Errorf("bucket %q on %s is for sessions, from which nothing is removed: the claim of a key stays, and is written anew when somebody leads the key", v.Bucket.Bucket(), v.ServerURL())
	}
	ended, err := v.Ended(ctx)
	if err != nil {
		return err
	}
	before := v.Clock.Now().Add(-b.olderThan)
	ended = slices.DeleteFunc(ended, func(e observe.Event) bool { return e.Kind != observe.Released || e.At.After(before) })
	if !b.json && len(ended) > 0 {
		if err := look.EndedTable(v, ended).Print(b.Stdout, terminal.StyleFor(b.Stdout)); err != nil {
			return err
		}
	}
	report := bucketPruneReport{Bucket: v.Bucket.Bucket(), Forgotten: []observe.Event{}}
	number, where := terminal.Plural(len(ended), "ended election"), fmt.Sprintf("bucket %q on %s", v.Bucket.Bucket(), v.ServerURL())
	switch {
	case len(ended) == 0:
		fmt.Fprintf(b.Stderr, "No election in %s ended longer ago than %v: nothing was forgotten\n", where, b.olderThan)
	case b.dryRun:
		report.Forgotten = ended
		fmt.Fprintf(b.Stderr, "%s would be forgotten in %s: nothing was forgotten\n", number, where)
	default:
		if err := b.Confirm(ctx, b.force, fmt.Sprintf("Forget %s in %s?", number, where)); err != nil {
			return err
		}
		var problems []error
		for _, e := range ended {
			if err := v.Admin.Forget(ctx, e); err != nil {
				problems = append(problems, err)
				continue
			}
			report.Forgotten = append(report.Forgotten, e)
		}
		fmt.Fprintf(b.Stderr, "%s forgotten in %s\n", terminal.Plural(len(report.Forgotten), "ended election"), where)
		err = errors.Join(problems...)
	}
	if b.json {
		err = errors.Join(err, terminal.WriteJSON(b.Stdout, report))
	}
	return err
}

// rm asks, and removes the bucket.
func (b *bucketCommand) rm(ctx context.Context) error {
	client, err := b.Connect("bucket rm")
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	bucket, err := client.OpenBucket(ctx, b.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return b.notFound(client)
	}
	if err != nil {
		return err
	}
	request, cancel := context.WithTimeout(ctx, client.Timeout)
	defer cancel()
	if err := client.IsForElections(request, bucket); err != nil {
		return err
	}
	leaders := look.DescribeLeaders(request, client, bucket)
	if b.force {
		fmt.Fprintln(b.Stderr, leaders)
	}
	if err := b.Confirm(ctx, b.force, fmt.Sprintf("%s\nRemove it?", leaders)); err != nil {
		return err
	}
	if err := b.remove(ctx, client); err != nil {
		return err
	}
	fmt.Fprintf(b.Stderr, "Bucket %q removed\n", b.Bucket)
	return nil
}

// remove sends the request that removes the bucket.
func (b *bucketCommand) remove(ctx context.Context, client *cli.Client) error {
	request, cancel := context.WithTimeout(ctx, client.Timeout)
	defer cancel()
	err := client.UntilRefused(request, kv.ToRemove, b.Bucket, func(ctx context.Context) error {
		return client.JetStream.DeleteKeyValue(ctx, b.Bucket)
	})
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return b.notFound(client)
	}
	if _, refused := errors.AsType[*jetstream.APIError](err); refused || errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("bucket %q on %s was not removed: %w", b.Bucket, client.ServerURL(), err)
	}
	if err != nil {
		return cli.UnknownOutcome(ctx, err, "it is not known whether bucket %q on %s was removed: run %s", b.Bucket, client.ServerURL(), b.NameCommand("bucket info"))
	}
	return nil
}

// notFound returns the error for a bucket that does not exist.
func (b *bucketCommand) notFound(client *cli.Client) *cli.ExitError {
	return cli.Negative("there is no bucket %q on %s: nothing was removed", b.Bucket, client.ServerURL())
}
