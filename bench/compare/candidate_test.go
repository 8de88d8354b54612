//go:build linux

package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/witness"
)

// candidate takes part in one election, as the documentation of its system recommends.
type candidate interface {
	// campaign takes part until ctx ends, and then stops in an orderly way. It calls report when it begins to lead by the
	// word of the API, and when it ends.
	campaign(ctx context.Context, report func(leads bool)) error
	// requests returns how many requests the candidate has sent so far.
	requests() int64
}

// candidateProcess does what its standard input says, until that ends.
func candidateProcess(name string) error {
	c, ok := caseNamed(name)
	if !ok {
		return fmt.Errorf("no case is named %q", name)
	}
	var w *witness.Witness
	if c.witness {
		var err error
		if w, err = witness.Start(func(context.Context) (*nats.Conn, error) { return connectOurs(os.Getenv(endpointOf)) }); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	tell := func(e event) {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = os.Stdout.Write(append(line, '\n'))
	}
	host := ""
	running := map[string]candidate{}
	stop := map[string]context.CancelFunc{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch key := words[len(words)-1]; words[0] {
		case "link":
			host = words[2]
			err := runIP("link set lo up",
				fmt.Sprintf("addr add %s/16 dev %s", words[2], words[1]),
				fmt.Sprintf("link set %s up", words[1]),
				fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", serverAddress, words[3], words[1]))
			if err != nil {
				return err
			}
		case "start":
			ctx, cancel := context.WithCancel(context.Background())
			stop[key] = cancel
			candidate, err := c.candidate(ctx, place{name: host, endpoint: os.Getenv(endpointOf), key: key, witness: w}, c)
			if err != nil {
				tell(event{At: now(), Kind: failed, Key: key, Message: err.Error()})
				continue
			}
			running[key] = candidate
			go func() {
				err := candidate.campaign(ctx, func(does bool) {
					kind := ends
					if does {
						kind = leads
					}
					tell(event{At: now(), Kind: kind, Key: key})
				})
				if err != nil {
					tell(event{At: now(), Kind: failed, Key: key, Message: err.Error()})
				}
			}()
		case "stop":
			tell(event{At: now(), Kind: stopping, Key: key})
			stop[key]()
		case "count":
			for key, c := range running {
				tell(event{At: now(), Kind: counted, Key: key, Count: c.requests()})
			}
		}
	}
	return nil
}

// place is where a candidate finds its election, its own name, and the witness of its process.
type place struct {
	name, endpoint, key string
	witness             *witness.Witness // nil: none
}

// pause waits, and tells whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
