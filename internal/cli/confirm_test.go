package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestConfirmWithoutATerminalRefusesUnlessForced(t *testing.T) {
	g := NewWithT(t)
	null, err := os.Open(os.DevNull)
	g.Expect(err).NotTo(HaveOccurred())
	defer null.Close()
	r, w, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer r.Close()
	defer w.Close()
	for _, in := range []*os.File{null, r} {
		env := &Env{Stdin: in, Stderr: &bytes.Buffer{}}
		g.Expect(env.Confirm(context.Background(), false, "Really?")).To(MatchError(ContainSubstring("--force")))
		g.Expect(env.Confirm(context.Background(), true, "Really?")).To(Succeed())
	}
}

func TestDefaultNameIsShortStableAndValid(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("HOSTNAME", "web-1")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	g.Expect(DefaultName()).To(Equal(fmt.Sprintf("web-1-%d", os.Getpid())))
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	g.Expect(DefaultName()).To(Equal("web-1"), "the name of the pod is enough")
	t.Setenv("HOSTNAME", strings.Repeat("x", 300))
	_, err := election.NewElection(DefaultName(), "key", PlaceholderBucket{})
	g.Expect(err).NotTo(HaveOccurred())
}
