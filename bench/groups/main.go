// Groups measures what a group of many members costs, and how it copes with members that start, leave and die by the hundred.
//
//	cd bench && go run ./groups -members 500 -keys 1000
//
// It runs a server and the members in processes of their own on this machine, each member with a connection of its own, and prints a line
// for each phase: how long the keys took to be led, how many moved, how long one was without a leader, whether one was led twice, and what
// the server received and sent meanwhile. -phases names the phases to run, in order; -h explains them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const phasesHelp = `the phases to run, in order, separated by commas:
start    all members start at once
steady   nothing happens for -steady: the cost
kill1    one member crashes, and another takes its place
kill10   a tenth of the processes is killed, and started again
kill50   half of the processes is killed, and started again
rolling  each member leaves and starts again, -parallel at a time
planner  the planner crashes every 10 s for a minute, and another member starts each time
server   the server is killed and started again
stop     all members leave at once`

var (
	members   = flag.Int("members", 500, "how many members")
	keys      = flag.Int("keys", 1000, "how many keys")
	ttl       = flag.Duration("ttl", 15*time.Second, "the TTL of the bucket")
	processes = flag.Int("processes", 10, "how many processes run the members")
	parallel  = flag.Int("parallel", 10, "how many members leave and start at a time, in phase rolling")
	steady    = flag.Duration("steady", time.Minute, "how long phase steady lasts")
	patience  = flag.Duration("patience", 2*time.Minute, "how long a phase waits for all keys to be led")
	phases    = flag.String("phases", "start,steady,kill1,kill10,kill50,rolling,planner,server,stop", phasesHelp)
	logs      = flag.String("logs", "", "a folder for the logs of the members, which also has the longest vacancy of each phase explained")
	role      = flag.String("role", "", "for the processes that this program starts")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	switch *role {
	case "":
		err = run(ctx)
	case "server":
		err = serve()
	case "members":
		err = takePart()
	default:
		err = fmt.Errorf("the role %q is not known", *role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	f, err := newFleet(ctx)
	if err != nil {
		return err
	}
	defer f.end()
	fmt.Printf("%d members in %d processes, %d keys, TTL %v\n\n", *members, *processes, *keys, *ttl)
	fmt.Println("| phase | all led after | moves | longest vacancy | terms ended | led twice | messages/s | MB/s | plans | lasted |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, name := range strings.Split(*phases, ",") {
		phase, known := map[string]func() error{
			"start": f.startAll, "steady": func() error { return f.sleep(*steady) }, "kill1": f.crashOne,
			"kill10": func() error { return f.kill(max(1, *processes/10)) }, "kill50": func() error { return f.kill(*processes / 2) },
			"rolling": f.roll, "planner": f.crashPlanners, "server": f.restartServer, "stop": f.stopAll,
		}[name]
		if !known {
			return fmt.Errorf("there is no phase %q: see -h", name)
		}
		if err := f.measure(name, phase); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
