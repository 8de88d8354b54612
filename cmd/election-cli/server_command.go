package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats-server/v2/server"
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
	*tool
	config embeddedConfig
	json   bool
}

func registerServer(app *fisk.Application, t *tool) {
	c := &serverCommand{tool: t}
	cmd := app.Command("server", "Runs a JetStream server to try things out").HelpLong(serverHelp).Action(action(c.run))
	cmd.Flag("port", "Port to listen on, on the loopback interface; 0 is any that is free").Default(fmt.Sprint(defaultPort)).PlaceHolder("PORT").IntVar(&c.config.port)
	cmd.Flag("store", "Keep what is stored in this folder").PlaceHolder("DIR").StringVar(&c.config.store)
	cmd.Flag("json", "Write the URL as JSON").UnNegatableBoolVar(&c.json)
}

// run serves until ctx ends.
func (c *serverCommand) run(ctx context.Context) error {
	if c.conn.givenByFlag() {
		return errors.New("server brings up a server of its own: leave out --server and --context, and give --port")
	}
	e, err := startEmbedded(c.config)
	if err != nil {
		return err
	}
	defer e.stop()
	if err := c.introduce(e); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(c.stderr, "Stopping")
	return nil
}

// introduce says where the server listens, and what may be done with it.
func (c *serverCommand) introduce(e *embedded) (err error) {
	kept, data := "", "Its data is gone when it stops: give --store DIR to keep it."
	if c.config.store != "" {
		kept, data = e.folder, "Its data is kept in "+e.folder+"."
	}
	if c.json {
		err = writeJSON(c.stdout, map[string]string{"url": e.url(), "store": kept})
	} else {
		_, err = fmt.Fprintln(c.stdout, e.url())
	}
	fmt.Fprintf(c.stderr, `nats-server %s runs until it is interrupted. %s
In another terminal:

    export NATS_URL=%s
    election-cli bucket add
    election-cli campaign scheduler

`, server.VERSION, data, e.url())
	return err
}
