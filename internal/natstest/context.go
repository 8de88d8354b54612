package natstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
)

// KeepContext keeps a context of natscli, and selects it if wanted, where the test alone finds it.
func KeepContext(t *testing.T, name, content string, selected bool) {
	t.Helper()
	g := gomega.NewWithT(t)
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	g.Expect(os.MkdirAll(filepath.Join(config, "nats", "context"), 0o755)).To(gomega.Succeed())
	g.Expect(os.WriteFile(filepath.Join(config, "nats", "context", name+".json"), []byte(content), 0o600)).To(gomega.Succeed())
	if selected {
		g.Expect(os.WriteFile(filepath.Join(config, "nats", "context.txt"), []byte(name+"\n"), 0o600)).To(gomega.Succeed())
	}
}
