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

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestADrillWritesItsResultEvenIfItCannotWriteTheDrawing(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &drillCommand{Env: &cli.Env{Stdout: &out, Stderr: io.Discard}, svg: filepath.Join(t.TempDir(), "drill.svg")}
	full := errors.New("no space left on device")
	g.Expect(d.writeResult(&drill.Report{}, func(io.Writer) error { return full })).To(MatchError(full))
	g.Expect(out.String()).To(ContainSubstring("time until a candidate leads"))
}

func TestADrillWritesItsResultEvenIfItCannotRemoveItsBucket(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	srv := natstest.StartNode(t, "server", &server.Options{JetStream: true,
		Users: []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.DELETE.*"}},
		}}},
	})
	url := strings.Replace(srv.ClientURL(), "://", "://u:p@", 1)
	code, stdout, stderr := runBinary(t, "drill", "-s", url, "--candidates", "2", "--rounds", "1", "--ttl", "1s", "--json")
	g.Expect(code).To(Equal(cli.ExitFailure), stderr)
	g.Expect(stderr).To(ContainSubstring("cannot remove bucket"))
	var r drill.Report
	g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed(), stdout)
	g.Expect(r.Samples).To(BeNumerically(">", 0))
}
