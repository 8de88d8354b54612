package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/witness"
)

// startWitness makes this process the witness of all candidates, if the drill is to have one, and returns the path of its socket. It connects to the
// servers without a link in between, and logs to a file beside the histories.
func (d *Drill) startWitness() (socket string, err error) {
	d.endWitness = func() {}
	if !d.Witness {
		return "", nil
	}
	log, err := os.Create(filepath.Join(d.folder, "witness.log"))
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("/tmp", "witness-") // the path of a socket is short, and that of the drill's folder may be long
	if err != nil {
		_ = log.Close()
		return "", err
	}
	path := filepath.Join(folder, "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		_, _ = log.Close(), os.RemoveAll(folder)
		return "", fmt.Errorf("the socket of the witness: %w", err)
	}
	dial := func(context.Context) (*nats.Conn, error) {
		return nats.Connect(strings.Join(d.cluster.URLs(), ","), nats.Name("witness"), nats.UserInfo(processes.Operator, processes.Operator),
			nats.MaxReconnects(-1), nats.ReconnectWait(processes.ReconnectWait/2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = witness.NewHost(dial, nil, slog.New(slog.NewTextHandler(log, nil))).Serve(ctx, listener)
	}()
	d.endWitness = func() {
		cancel()
		<-ended
		_, _ = log.Close(), os.RemoveAll(folder)
	}
	return path, nil
}
