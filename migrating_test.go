package election_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/mutex"
)

// docs/MIGRATING.md shows these examples as "after": a test compares them.

func Example_fromClientGo() {
	bucket, shutdown := connect("controller")
	defer shutdown()
	ctx, stop := context.WithCancel(context.Background())
	reconcile := func(_ context.Context, token string) error {
		fmt.Println("reconciling with a token:", token != "")
		stop()
		return nil
	}

	ctx, cancel := context.WithCancel(ctx)
	e, err := election.NewElection("pod-1", "controller", bucket, election.WithSplay(0), election.OnLost(cancel))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		return reconcile(ctx, term.Token()) // returns when ctx ends
	})
	fmt.Println(err) // exit here: the key is released by now
	// Output:
	// reconciling with a token: true
	// <nil>
}

func Example_fromRedsync() {
	bucket, shutdown := connect("migrate")
	defer shutdown()
	ctx := context.Background()
	migrate := func(ctx context.Context) error { fmt.Println("migrating"); return ctx.Err() }

	m, err := mutex.New("web-1", "migrate", bucket)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	err = migrate(m.Context()) // the context ends if the lock is lost
	if err := m.Unlock(); err != nil {
		log.Print(err) // it was lost before
	}
	fmt.Println(err)
	// Output:
	// migrating
	// <nil>
}

func TestMigrationGuideShowsTheExamples(t *testing.T) {
	g := NewWithT(t)
	guide, err := os.ReadFile("docs/MIGRATING.md")
	g.Expect(err).NotTo(HaveOccurred())
	source, err := os.ReadFile("migrating_test.go")
	g.Expect(err).NotTo(HaveOccurred())
	examples := trimLines(string(source))
	blocks := regexp.MustCompile("(?s)\nAfter[^\n]*\n\n```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	g.Expect(blocks).To(HaveLen(strings.Count(string(source), "\nfunc Example_")))
	for _, block := range blocks {
		g.Expect(examples).To(ContainSubstring(trimLines(block[1])))
	}
}

// trimLines removes the blanks at the beginning and end of each line.
func trimLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
