// Package connect gives an election its connection to NATS and its bucket, both fit for elections and checked.
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"log"
//		"os"
//		"os/signal"
//		"syscall"
//
//		"github.com/natscampaign/election"
//		"github.com/natscampaign/election/connect"
//	)
//
//	func main() {
//		if err := run(); err != nil && !errors.Is(err, context.Canceled) { // an interrupt
//			log.Fatal(err)
//		}
//	}
//
//	func run() error {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		cfg, err := connect.FromEnv("ELECTION") // ELECTION_KEY=scheduler NATS_URL=nats://nats.example.com
//		if err != nil {
//			return err
//		}
//		c, err := connect.Connect(ctx, cfg)
//		if err != nil {
//			return err
//		}
//		defer c.Close()
//		candidate, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
//		if err != nil {
//			return err
//		}
//		return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
//			<-ctx.Done() // the work: it must return soon after ctx ends
//			return nil
//		})
//	}
//
// [FromEnv] reads a [Config] from the environment, and [Connect] makes of it a connection with a bucket. A program that has its configuration
// elsewhere fills in a Config itself. A program that has a connection already needs none of it: election.OpenBucket is enough.
//
// # Environment
//
// FromEnv reads these variables. Its argument is the prefix of those that begin with ELECTION here. An empty variable counts as not set.
//
//	ELECTION_KEY                the election
//	ELECTION_NAME               the candidate; if not set, POD_NAME, or else the host with the process id,
//	                            as in web-1-4711: in Kubernetes, and for process 1 of a container, the host
//	                            alone, whose name is HOSTNAME if that is set
//	ELECTION_BUCKET             default LEADER_ELECTION
//	ELECTION_MUST_EXIST         true: Connect does not make a bucket
//
//	NATS_URL                    servers, separated by commas; default nats://127.0.0.1:4222
//	NATS_CREDS                  file with a user's JWT and seed
//	NATS_NKEY                   file with a user's seed
//	NATS_USER                   a user, or a token if there is no password
//	NATS_PASSWORD               of the user
//	NATS_CERT, NATS_KEY         files with a certificate and its key: both or neither
//	NATS_CA                     file with the authorities that are trusted in place of the system's
//	NATS_TLS_FIRST              true: the TLS handshake comes first, as handshake_first of servers demands
//	NATS_CONTEXT                a context of natscli; the other variables override its settings
//	ELECTION_INBOX_PREFIX       what the subjects of answers begin with; default _INBOX
//
//	ELECTION_TTL                of a bucket that Connect makes; default 15s
//	ELECTION_REPLICAS           of a bucket that Connect makes: 1, 3 or 5; default: 3 in a cluster, else 1
//	ELECTION_MAX_BYTES          of a bucket that Connect makes: 1048576 or 1M
//	ELECTION_CHORIA_COMPATIBLE  true: candidates of Choria campaign too
//
//	ELECTION_INTERVAL           see election.WithCampaignInterval; default: a quarter of the TTL, or 0.75 of
//	                            it where candidates of Choria may campaign too
//	ELECTION_SPLAY              see election.WithSplay
//	ELECTION_STAND_DOWN         see election.WithStandDown
//	ELECTION_LEASE_MARGIN       see election.WithLeaseMargin
//	ELECTION_RELEASE_TIMEOUT    see election.WithReleaseTimeout
//
//	ELECTION_METADATA           see election.WithMetadata: zone=a,rack=7
//	ELECTION_PRIORITY           see election.WithPriority
//	ELECTION_PREEMPTION         true: see election.WithPreemption
//	ELECTION_RELINQUISH         see election.WithRelinquish: 6h, or 0 4 * * *
//	ELECTION_PLAIN_VALUE        true: see election.WithPlainValue
//
// The variables that begin with NATS are natscli's, but for NATS_TLS_FIRST, and have no prefix. A context is used only if NATS_CONTEXT names it:
// the context that is selected on a machine says nothing about the programs that run there.
package connect
