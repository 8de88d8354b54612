package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

const (
	bucketAddHelp = `The bucket gets a history of 1, the TTL, markers that announce expiries unless it is --choria-compatible, and the server
republishes what is written to it, which notifies candidates of a vacancy at no cost. Warnings about the bucket go to stderr.

If the bucket exists and is as asked for, the command says so, and the exit code is 0. If it differs, the command names each
difference and changes nothing, and the exit code is 2.

With --json the result is one object: "made" (false if it existed), and all that 'info --json' has.`

	bucketRmHelp = `The command says how many elections in the bucket have a leader right now, and asks. Those leaders are not notified: until they
notice, which takes as long as the TTL at most, others may lead in a bucket of that name that is made again. Stop them first.

The exit code is 1 if there is no such bucket, or if the answer was no. A bucket without a TTL holds no elections and is
not removed.`

	bucketDefaultTTL = 30 * time.Second
	leadersNamed     = 5 // in a question, at most
)

// bucketCommand has the commands below bucket.
type bucketCommand struct {
	*cli.Env
	ttl              time.Duration
	replicas         int
	storage          string
	choriaCompatible bool
	force            bool
	json             bool
}

func registerBucket(app *fisk.Application, t *cli.Env) {
	b := &bucketCommand{Env: t}
	cmd := app.Command("bucket", "Makes, shows and removes the bucket that --bucket names")

	add := cmd.Command("add", "Makes a bucket that is fit for elections").HelpLong(bucketAddHelp).Action(cli.Action(b.add))
	add.Flag("ttl", "How long a lease lasts: how soon a leader that crashed is replaced").Default(bucketDefaultTTL.String()).PlaceHolder("DURATION").DurationVar(&b.ttl)
	add.Flag("replicas", "Replicas in a cluster: 1, 3 or 5").Default("1").PlaceHolder("N").IntVar(&b.replicas)
	add.Flag("storage", "Where it is kept: file, or memory, which forgets term numbers when servers restart").Default("file").EnumVar(&b.storage, "file", "memory")
	add.Flag("choria-compatible", "Candidates of Choria campaign in it too, so that expiries are not announced").UnNegatableBoolVar(&b.choriaCompatible)
	add.Flag("json", "Write the result as JSON").UnNegatableBoolVar(&b.json)

	i := &infoCommand{Env: t}
	show := cmd.Command("info", "Describes the bucket, as info does").HelpLong(infoHelp).Action(cli.Action(i.run))
	show.Flag("json", "Write it as JSON").UnNegatableBoolVar(&i.json)

	rm := cmd.Command("rm", "Removes the bucket and all elections in it").HelpLong(bucketRmHelp).Action(cli.Action(b.rm))
	rm.Flag("force", "Do not ask").Short('f').UnNegatableBoolVar(&b.force)
}

// config returns the configuration that the flags ask for.
func (b *bucketCommand) config() (election.BucketConfig, error) {
	c := election.BucketConfig{Name: b.Bucket, TTL: b.ttl, Replicas: b.replicas, ChoriaCompatible: b.choriaCompatible}
	if b.storage == "memory" {
		c.Storage = jetstream.MemoryStorage
	}
	problems := []error{cli.CheckTTL(b.ttl)}
	if b.replicas != 1 && b.replicas != 3 && b.replicas != 5 {
		problems = append(problems, fmt.Errorf("--replicas %d: give 1, 3 or 5", b.replicas))
	}
	return c, errors.Join(problems...)
}

// add makes the bucket, or says that it is there.
func (b *bucketCommand) add(ctx context.Context) error {
	config, err := b.config()
	if err != nil {
		return err
	}
	s, err := b.Connection.Connect(nats.Name("election-cli bucket add"))
	if err != nil {
		return err
	}
	defer s.Conn.Close()
	bucket, made, err := s.EnsureBucket(ctx, config)
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	v, err := look.Of(ctx, s, bucket)
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	report, err := v.Report(ctx)
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	if b.json {
		err = terminal.WriteJSON(b.Stdout, struct {
			Made bool `json:"made"`
			*look.BucketInfo
		}{made, report})
	} else {
		err = report.Print(b.Stdout, v)
	}
	said := "is made"
	if !made {
		said = "exists, and is as asked for"
	}
	fmt.Fprintf(b.Stderr, "Bucket %s %s\n", report.Bucket, said)
	return errors.Join(err, look.PrintFindings(b.Stderr, terminal.StyleFor(b.Stderr), report.Findings, admin.SeverityWarning))
}

// rm removes the bucket.
func (b *bucketCommand) rm(ctx context.Context) error {
	s, err := b.Connection.Connect(nats.Name("election-cli bucket rm"))
	if err != nil {
		return err
	}
	defer s.Conn.Close()
	bucket, err := s.FindBucket(ctx, b.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return b.none(s)
	}
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	request, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	status, err := bucket.Status(request)
	if err != nil {
		return cli.OrInterrupted(ctx, fmt.Errorf("bucket %q on %s cannot be read: %w", b.Bucket, s.ServerURL(), err))
	}
	if status.TTL() <= 0 {
		return fmt.Errorf("bucket %q on %s has no TTL, so that it holds no elections: if it is to go all the same, remove it with 'nats kv del %s'", b.Bucket, s.ServerURL(), b.Bucket)
	}
	led := leadersIn(request, s, bucket)
	if b.force {
		fmt.Fprintln(b.Stderr, led)
	}
	if err := b.Confirm(ctx, b.force, fmt.Sprintf("%s\nRemove it?", led)); err != nil {
		return err
	}
	if err := b.remove(ctx, s); err != nil {
		return err
	}
	fmt.Fprintf(b.Stderr, "Bucket %s is removed\n", b.Bucket)
	return nil
}

// remove removes the bucket.
func (b *bucketCommand) remove(ctx context.Context, s *cli.Session) error {
	request, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := s.JetStream.DeleteKeyValue(request, b.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return b.none(s)
	}
	if _, refused := errors.AsType[*jetstream.APIError](err); refused {
		return fmt.Errorf("bucket %q on %s was not removed: %w", b.Bucket, s.ServerURL(), err)
	}
	if err != nil {
		return cli.InDoubt(ctx, err, "whether bucket %q on %s was removed is not known ('%s' shows it)", b.Bucket, s.ServerURL(), cli.CommandOn("bucket info", b.Bucket))
	}
	return nil
}

// none is the verdict if there is no such bucket.
func (b *bucketCommand) none(s *cli.Session) *cli.ExitError {
	return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf("there is no bucket %q on %s: nothing was removed", b.Bucket, s.ServerURL())}
}

// leadersIn says in words who leads in the bucket right now.
func leadersIn(ctx context.Context, s *cli.Session, bucket *election.Bucket) string {
	in := fmt.Sprintf("Bucket %s on %s", bucket.Bucket(), s.ServerURL())
	o, err := observe.New(bucket)
	if err != nil {
		return fmt.Sprintf("%s: its leaders cannot be read (%v).", in, err)
	}
	leaders, err := o.Leaders(ctx)
	if err != nil {
		return fmt.Sprintf("%s: its leaders cannot be read (%v).", in, err)
	}
	var names []string
	for _, l := range leaders[:min(len(leaders), leadersNamed)] {
		l = look.Shown(l)
		names = append(names, l.Key+": "+l.Name)
	}
	if more := len(leaders) - leadersNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch len(leaders) {
	case 0:
		return in + ": no election has a leader right now."
	case 1:
		return fmt.Sprintf("%s: 1 election has a leader right now (%s).", in, names[0])
	}
	return fmt.Sprintf("%s: %d elections have a leader right now (%s).", in, len(leaders), strings.Join(names, ", "))
}
