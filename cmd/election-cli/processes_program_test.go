package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestADrillPassesOnANATSServerProgram(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	program, version, err := natstest.InstallServer("")
	g.Expect(err).NotTo(HaveOccurred())
	r := drillWith(t, "--nats-server", program, "--fault", "kill-server", "--fault", "revoke", "--fault", "restart-servers", "--fault", "stop")
	g.Expect(r.ServerVersion).To(Equal(version))
	g.Expect(r.Faults).NotTo(BeEmpty())
}

func TestNoNATSServerProgramOutlivesADrillThatIsKilled(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	program, _, err := natstest.InstallServer("")
	g.Expect(err).NotTo(HaveOccurred())
	temp := t.TempDir()
	cmd, _, _ := drillThatLeads(t, temp, "--nats-server", program)
	files, err := filepath.Glob(filepath.Join(temp, "*", "server-*.conf"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(3))
	listens := func(file string) bool {
		var config struct{ Listen string }
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(text, &config)).To(Succeed())
		c, err := net.DialTimeout("tcp", config.Listen, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	for _, file := range files {
		g.Expect(listens(file)).To(BeTrue())
	}
	g.Expect(cmd.Process.Kill()).To(Succeed())
	_ = cmd.Wait()
	for _, file := range files {
		g.Eventually(func() bool { return listens(file) }).WithTimeout(clitest.Timeout).Should(BeFalse())
	}
	next, _, _ := command(t, "server", "--port", "0")
	next.Env = append(os.Environ(), "TMPDIR="+temp)
	lines, err := linesOf(&next.Stdout, next.StdoutPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(next.Start()).To(Succeed())
	g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive())
	g.Expect(filepath.Dir(files[0])).NotTo(BeAnExistingFile(), "the next server deletes what a killed drill left")
	g.Expect(next.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(next.Wait()).To(Succeed())
}
