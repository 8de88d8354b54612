package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/terminal"
)

func TestEachWarningOfAnUnreachableServerSaysWhyAndItIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out bytes.Buffer
		d := &dialing{log: slog.New(terminal.NewLogHandler(&out, terminal.Style{}, slog.LevelWarn))}
		fail := func(during time.Duration) (warnings []string) {
			out.Reset()
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(reconnectWait) {
				d.failed(errors.New("no such host"), []string{"nats://a:1", "nats://b:1"}, false)
			}
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		warnings := fail(3 * repeatInterval)
		g.Expect(warnings).To(HaveLen(3))
		g.Expect(warnings[0]).To(ContainSubstring(`WARN   Server cannot be reached yet, waiting for it  server="nats://a:1, nats://b:1"  error="no such host"`))
		g.Expect(warnings[2]).To(ContainSubstring(`WARN   Server still cannot be reached  server="nats://a:1, nats://b:1"  error="no such host"`))
		g.Expect(d.neverConnected()).To(MatchError("no such host"))

		d.succeeded()
		g.Expect(d.neverConnected()).To(Succeed())
		d.lost()
		g.Expect(fail(restartTime-reconnectWait)).To(Equal([]string{""}), "a server that restarts is no news")
		g.Expect(fail(repeatInterval)).To(HaveLen(1))
		g.Expect(d.neverConnected()).To(Succeed())
	})
}

func TestAConnectionThatIsClosedAlreadyIsNotLoggedAsOneToNobody(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &dialing{log: slog.New(terminal.NewLogHandler(&out, terminal.Style{}, slog.LevelInfo))}
	var o nats.Options
	for _, set := range d.options() {
		g.Expect(set(&o)).To(Succeed())
	}
	o.ConnectedCB(&nats.Conn{})
	g.Expect(out.String()).To(BeEmpty())
	g.Expect(d.neverConnected()).To(Succeed())
}

func TestRefusedConnectionToTheDefaultServerSaysHowToGetOne(t *testing.T) {
	g := NewWithT(t)
	const fix = ": start a server with 'election-cli server', or name yours with --server, NATS_URL or --context"
	for _, err := range []error{nats.ErrNoServers, fmt.Errorf("dial tcp 127.0.0.1:4222: connect: %w", syscall.ECONNREFUSED)} {
		g.Expect(explainDial(err, nats.DefaultURL, false)).To(MatchError(HaveSuffix("connection refused" + fix)))
		g.Expect(explainDial(err, "nats://prod:4222", false)).To(MatchError(HaveSuffix("connection refused: start the server there, or correct host and port in --server, NATS_URL or --context")))
	}
}
