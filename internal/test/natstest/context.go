package natstest

import (
	"os"
	"path/filepath"
	"testing"
)

// KeepContext writes a context of natscli, and selects it if selected, in a folder where the test alone finds it.
func KeepContext(t *testing.T, name, content string, selected bool) {
	t.Helper()
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	write := func(path, text string) {
		if err := os.WriteFile(filepath.Join(config, "nats", path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(config, "nats", "context"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join("context", name+".json"), content)
	if selected {
		write("context.txt", name+"\n")
	}
}
