package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"
)

func TestWhatADrillFoundIsShownAlsoWhereItCannotBeDrawn(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &drill{tool: &tool{stdout: &out, stderr: io.Discard}, svg: filepath.Join(t.TempDir(), "drill.svg")}
	full := errors.New("no space left on device")
	g.Expect(d.show(resultOf(nil), func(io.Writer) error { return full })).To(MatchError(full))
	g.Expect(out.String()).To(ContainSubstring("time until somebody leads"))
}

func TestADrillThatCannotRemoveItsBucketShowsItsResultAllTheSame(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	srv, err := server.NewServer(&server.Options{Host: loopback, Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.DELETE.*"}},
		}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	g.Expect(srv.ReadyForConnections(patience)).To(BeTrue())
	url := strings.Replace(srv.ClientURL(), "://", "://u:p@", 1)
	code, stdout, stderr := runs(t, "drill", "-s", url, "--candidates", "2", "--rounds", "1", "--ttl", "1s", "--json")
	g.Expect(code).To(Equal(exitError), stderr)
	g.Expect(stderr).To(ContainSubstring("could not be removed"))
	var r report
	g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed(), stdout)
	g.Expect(r.Samples).To(BeNumerically(">", 0))
}
