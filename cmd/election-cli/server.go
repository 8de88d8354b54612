package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/terminal"
)

const serverHelp = `It is a NATS server with JetStream in this process, to try things out and to develop against: one server without
accounts, passwords or TLS, which listens on the loopback interface only. Run nats-server for anything else.

What it stores is kept in the folder that --store names, which is made if there is none, so that a later server finds its
buckets again; without, it is gone when the server stops.

Its URL is the one line on stdout, written once it is ready; with --json one object: "url", and "store", the folder, which
is empty if nothing is kept. It runs until it is interrupted (INT or TERM), and then exits 0.`

const defaultPort = 4222

// serverCommand is the command server.
type serverCommand struct {
	*cli.Env
	config embedded.Config
	json   bool
}

func registerServer(app *fisk.Application, t *cli.Env) {
	c := &serverCommand{Env: t}
	cmd := app.Command("server", "Runs a JetStream server to try things out").HelpLong(serverHelp).Action(cli.Action(c.run))
	cmd.Flag("port", "Port to listen on, on the loopback interface; 0 is any that is free").Default(fmt.Sprint(defaultPort)).PlaceHolder("PORT").IntVar(&c.config.Port)
	cmd.Flag("store", "Keep what is stored in this folder").PlaceHolder("DIR").StringVar(&c.config.Store)
	cmd.Flag("json", "Write the URL as JSON").UnNegatableBoolVar(&c.json)
}

// run serves until ctx ends.
func (c *serverCommand) run(ctx context.Context) error {
	if c.Connection.NamedByFlag() {
		return errors.New("server brings up a server of its own: leave out --server and --context, and give --port")
	}
	e, err := embedded.Start(c.config)
	if err != nil {
		return err
	}
	defer e.Stop()
	if err := c.introduce(e); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(c.Stderr, "Stopping")
	return nil
}

// introduce says where the server listens, and what may be done with it.
func (c *serverCommand) introduce(e *embedded.Server) (err error) {
	kept, data := "", "Its data is gone when it stops: give --store DIR to keep it."
	if c.config.Store != "" {
		kept, data = e.Folder, "Its data is kept in "+e.Folder+"."
	}
	if c.json {
		err = terminal.WriteJSON(c.Stdout, map[string]string{"url": e.URL(), "store": kept})
	} else {
		_, err = fmt.Fprintln(c.Stdout, e.URL())
	}
	fmt.Fprintf(c.Stderr, `nats-server %s runs until it is interrupted. %s
In another terminal:

    export NATS_URL=%s
    election-cli bucket add
    election-cli campaign scheduler

`, server.VERSION, data, e.URL())
	return err
}
