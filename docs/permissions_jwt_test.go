package docs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

// permissionsOf returns the permissions of a block as those of a JWT.
func permissionsOf(t *testing.T, block string) (p jwt.Permissions) {
	t.Helper()
	publish, _, _ := strings.Cut(block, "subscribe = [")
	for _, l := range linesOf(t, block) {
		subject := strings.Trim(l.name, `"`)
		switch {
		case l.option:
		case strings.Contains(publish, l.text):
			p.Pub.Allow.Add(subject)
		default:
			p.Sub.Allow.Add(subject)
		}
	}
	return p
}

func TestBlocksWorkAsUserJWTs(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for _, role := range []string{"CANDIDATE", "OPERATOR", "OBSERVER", "MONITOR"} {
		lines := linesOf(t, page[role])
		for purpose, check := range checks[role] {
			if slices.ContainsFunc(lines, func(l line) bool { return l.option && slices.Contains(needs(purpose), l.purpose) }) {
				continue // options, which are left out here
			}
			t.Run(role+"/"+purpose, func(t *testing.T) {
				NewWithT(t).Expect(runWithJWTs(t, page, check)).To(BeEmpty())
			})
		}
	}
}

// runWithJWTs runs a check on a server in operator mode, with the blocks in the JWTs of users of one account.
func runWithJWTs(t *testing.T, page map[string]string, check func(b *bench)) (failure string) {
	t.Helper()
	g := NewWithT(t)
	pair := func(prefix nkeys.PrefixByte) (nkeys.KeyPair, string) {
		k, err := nkeys.CreatePair(prefix)
		g.Expect(err).NotTo(HaveOccurred())
		public, err := k.PublicKey()
		g.Expect(err).NotTo(HaveOccurred())
		return k, public
	}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		token, err := c.Encode(by)
		g.Expect(err).NotTo(HaveOccurred())
		return token
	}
	natstest.Bubble(t, func(t *testing.T) {
		operator, operatorKey := pair(nkeys.PrefixByteOperator)
		claims := jwt.NewOperatorClaims(operatorKey)
		_, system := pair(nkeys.PrefixByteAccount)
		claims.SystemAccount = system
		trusted, err := jwt.DecodeOperatorClaims(encode(claims, operator))
		g.Expect(err).NotTo(HaveOccurred())
		account, accountKey := pair(nkeys.PrefixByteAccount)
		elections := jwt.NewAccountClaims(accountKey)
		elections.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		resolver := &server.MemAccResolver{}
		g.Expect(resolver.Store(accountKey, encode(elections, operator))).To(Succeed())
		g.Expect(resolver.Store(system, encode(jwt.NewAccountClaims(system), operator))).To(Succeed())
		s := natstest.Start(t, func(o *server.Options) {
			o.TrustedOperators, o.SystemAccount, o.AccountResolver = []*jwt.OperatorClaims{trusted}, system, resolver
		})
		b := &bench{T: t, ttl: ttl, open: jetstream.New}
		b.connect = func(name string, opts ...nats.Option) *nats.Conn {
			user, userKey := pair(nkeys.PrefixByteUser)
			c := jwt.NewUserClaims(userKey)
			for role, of := range users {
				if of == name {
					c.Permissions = permissionsOf(t, page[role])
				}
			}
			seed, err := user.Seed()
			g.Expect(err).NotTo(HaveOccurred())
			return s.Connect(t, append([]nats.Option{inboxOf(name), nats.UserJWTAndSeed(encode(c, account), string(seed))}, opts...)...)
		}
		failure = b.try(check)
	})
	return failure
}
