package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/terminal"
)

const serverHelp = `The server is a NATS server with JetStream in this process, for experiments and development. It has no accounts, passwords or
TLS, and listens on the loopback interface only. For any other purpose run nats-server. For example, with data that is kept:

    election-cli server --port 4222 --store ./nats-data

The server stores its data in the folder of --store, and creates the folder if it does not exist. A later server with the same
folder has the same buckets. Without --store the data is deleted when the server stops. If the server is
killed, its data is deleted when the next server starts.

The command logs the warnings and errors of the server to stderr. After a write error, such as that of a full disk, the server
stores nothing more until it is restarted: the command says so, and until then no candidate can win or keep a key.

When the server is ready, the command writes one line to stdout: the URL of the server. With --json it writes one object: "url"
and "store" (the folder, or empty if the data is not kept). The server runs until it is interrupted (INT or TERM), and then
exits with 0.`

const defaultPort = 4222

// serverCommand is the command server.
type serverCommand struct {
	*cli.Env
	config embedded.Config
	json   bool
}

func registerServer(app *fisk.Application, t *cli.Env) {
	c := &serverCommand{Env: t}
	cmd := app.Command("server", "Runs a JetStream server for experiments and development").HelpLong(serverHelp).Action(cli.Action(c.run))
	cli.IntVar(cmd.Flag("port", "Port on the loopback interface; 0 selects a free port").Default(fmt.Sprint(defaultPort)).PlaceHolder("PORT"), &c.config.Port, defaultPort)
	cmd.Flag("store", "Keep the data in this folder").PlaceHolder("DIR").StringVar(&c.config.Store)
	cli.JSONVar(cmd, "Write the URL and the folder as JSON", &c.json)
}

// run runs the server until ctx ends.
func (c *serverCommand) run(ctx context.Context) error {
	if c.Connection.NamesServerByFlag() {
		return errors.New("the command starts its own server: leave out --server and --context, and give --port")
	}
	log := c.Log(slog.LevelInfo)
	c.config.Log = log
	e, err := embedded.Start(c.config)
	if err != nil {
		return err
	}
	defer e.Stop()
	if err := c.printInstructions(e); err != nil {
		return err
	}
	e.WatchHealth(ctx, log)
	fmt.Fprintln(c.Stderr, "Stopping")
	return nil
}

// serverReport is the first output of the server in JSON.
type serverReport struct {
	URL   string `json:"url"`
	Store string `json:"store"` // the folder; empty if the data is deleted when the server stops
}

// printInstructions writes the URL of the server to stdout, and the commands to try next to stderr.
func (c *serverCommand) printInstructions(e *embedded.Server) (err error) {
	store, note := "", "Its data is deleted when it stops; give --store DIR to keep the data."
	if c.config.Store != "" {
		store, note = e.Folder, "It keeps its data in "+e.Folder+"."
	}
	if c.json {
		err = terminal.WriteJSON(c.Stdout, serverReport{e.URL(), store})
	} else {
		_, err = fmt.Fprintln(c.Stdout, e.URL())
	}
	fmt.Fprintf(c.Stderr, `nats-server %s runs until it is interrupted. %s
In another terminal:

    export NATS_URL=%s
    election-cli bucket add --ttl 5s
    election-cli campaign scheduler

`, server.VERSION, note, e.URL())
	return err
}
