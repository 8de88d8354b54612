package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/witness"
)

const witnessHelp = `The command is the witness of this host, or of the pod in which it is a sidecar: when the process of a leader dies, the command
releases the leader's key. The next candidate then leads after milliseconds and a settle time, rather than when the lease is over.
For example:

    election-cli witness --socket /run/election/witness.sock
    ELECTION_WITNESS=unix:///run/election/witness.sock election-cli campaign scheduler

A program that embeds package election names the socket in the same variable, and calls witness.OfHost. A program that starts before
the witness looks for it once a second. The kernel tells the command of a death (Linux 5.3 or newer, or macOS). If the command runs
outside the container of a program, it survives what kills that whole container, such as memory.oom.group of Kubernetes. While no
witness runs, or it is stopped, slow or cut off, a leader that dies is replaced when its lease is over.

The command connects with the flags of the connection while a program on this host leads. It waits for an unreachable server, and
reconnects without limit. Its user must belong to the account of the programs, and needs the permissions of a candidate: it reads
and writes the keys of the leaders. A witness for several accounts is one command for each, with a socket of its own. Programs that
use a JetStream domain or another API prefix need --allow-domain or --allow-api-prefix. The command writes in no bucket whose stream
stores or copies anything but the keys of that bucket.

A program must connect to the socket itself. Through a relay, such as socat or ssh -R, the kernel does not tell which process the
program is: then the command refuses the program, and the program logs that there is no witness. If a program replaces itself by
exec, its key is released at once on Linux, and when its lease is over on macOS.

By default only the user of the command and root may connect. Programs of other users need --socket-mode 0660 and the group of the
socket, or --socket-mode 0666. A program that connects can have its own terms released, and no others: the release of a term needs a
secret that only its leader knows. One program may take 8 MiB of memory (some 10,000 terms), one user 32 MiB, and all of them
128 MiB. Terms beyond that are left to their leases, and the program logs why.

The command replaces a socket on which nobody answers, and no other file. It runs until INT or TERM interrupts it, removes the
socket, and exits with 0.`

// maxSocketPath is the longest path of a socket, in bytes. A zero ends it.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// witnessCommand is the command witness.
type witnessCommand struct {
	*cli.Env
	socket, mode      string
	domains, prefixes []string
	verbose           bool
}

func registerWitness(app *fisk.Application, t *cli.Env) {
	c := &witnessCommand{Env: t}
	cmd := app.Command("witness", "Releases the key of a leader whose process dies").HelpLong(witnessHelp).Action(cli.Action(c.run))
	cmd.Flag("socket", "Path of the socket to which programs connect").Required().PlaceHolder("PATH").StringVar(&c.socket)
	cmd.Flag("socket-mode", "Permissions of the socket, in octal: who can write it can connect").Default("0600").PlaceHolder("MODE").StringVar(&c.mode)
	cmd.Flag("allow-domain", "JetStream domain that programs may use, besides that of --js-domain; repeatable").PlaceHolder("DOMAIN").StringsVar(&c.domains)
	cmd.Flag("allow-api-prefix", "Prefix of the JetStream API that programs may use, besides that of --js-api-prefix; repeatable").PlaceHolder("PREFIX").StringsVar(&c.prefixes)
	cmd.Flag("verbose", "Also log each request that failed").Short('v').UnNegatableBoolVar(&c.verbose)
}

// run is the witness until ctx ends.
func (c *witnessCommand) run(ctx context.Context) error {
	if !witness.Supported {
		return witness.ErrUnsupported
	}
	mode, err := strconv.ParseUint(c.mode, 8, 9)
	if err != nil {
		return fmt.Errorf("--socket-mode %q is no mode: give one in octal, such as 0600, 0660 or 0666", c.mode)
	}
	if err := c.Connection.Check(); err != nil { // else it would come to light when a program leads
		return err
	}
	stderr := terminal.NewQueue(c.Stderr, terminal.DroppedLines, func(error) {}) // the witness goes on if stderr cannot be written
	defer stderr.Close()
	log := slog.New(terminal.NewLogHandler(stderr, terminal.StyleFor(c.Stderr), cli.LevelFor(c.verbose)))
	socket, err := listenAt(c.socket, fs.FileMode(mode))
	if err != nil {
		return err
	}
	defer socket.Close() // which removes the file
	dial := func(context.Context) (*nats.Conn, error) {
		client, err := c.Connection.ConnectForever("election-cli witness "+cli.Host(), log)
		if err != nil {
			return nil, err
		}
		return client.Conn, nil
	}
	log.Info("Witness is ready", "socket", c.socket)
	defer log.Info("Witness has stopped", "socket", c.socket)
	return witness.NewHost(dial, c.Connection.APIPrefixes(c.domains, c.prefixes), log).Serve(ctx, socket)
}

// listenAt listens on a socket, in the place of one on which nobody answers.
func listenAt(path string, mode fs.FileMode) (*net.UnixListener, error) {
	switch {
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("--socket %q is no absolute path: give one that begins with /, as ELECTION_WITNESS names it", path)
	case len(path) > maxSocketPath:
		return nil, fmt.Errorf("--socket %q has %d bytes: give a path of at most %d, the system allows no longer one for a socket", path, len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	socket, err := host.ListenUnix(path, mode)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w: the folder must exist, and this user must have permission to write there", err)
	}
	return socket, nil
}

// removeStale removes a socket that a witness left behind. It returns an error if anything else is there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("--socket %q is no socket, so it stays as it is: give another path, or move the file away", path)
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("another witness listens on --socket %q: stop it, or give another path", path)
	case !errors.Is(err, syscall.ECONNREFUSED): // as of a socket of another user, or of another kind: somebody may listen
		return fmt.Errorf("--socket %q cannot be used, so it stays as it is: %w: give another path, or remove the socket", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--socket: %w", err)
	}
	return nil
}
