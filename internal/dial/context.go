package dial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/synadia-io/orbit.go/natscontext"
)

// contextFolder returns the folder with what natscli keeps of contexts; "" if there is none. Like natscli it is below the home directory that the
// system has for the user, whatever HOME says: the two differ under sudo and cron, and a context must not be selected in one and read in the other.
func contextFolder() string {
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		u, err := user.Current()
		if err != nil || u.HomeDir == "" {
			return ""
		}
		config = filepath.Join(u.HomeDir, ".config")
	}
	return filepath.Join(config, "nats")
}

// SelectedContext returns the name of the context that is selected in natscli; "" if none is.
func SelectedContext() string {
	text, _ := os.ReadFile(filepath.Join(contextFolder(), "context.txt"))
	return strings.TrimSpace(string(text))
}

// ContextFile returns the path of the file of a context, which may be named by that path too.
func ContextFile(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(contextFolder(), "context", name+".json")
}

// CheckContext returns an error that names the file at fault, if a context cannot be used: that of the context, or one that the context names.
func CheckContext(name string) error {
	path := ContextFile(name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no context %q: there is no file %s: 'nats context ls' lists the contexts", name, path)
	case err != nil:
		return fmt.Errorf("the context %q cannot be read: %w", name, err)
	}
	var s natscontext.Settings
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("the context %q is broken: %s is not the JSON of a context: %w: correct the file, or save the context again with 'nats context save %[1]s'", name, path, err)
	}
	for _, f := range []struct{ setting, path string }{{"creds", os.ExpandEnv(s.Creds)}, {"nkey", s.NKey}, {"cert", s.Cert}, {"key", s.Key}, {"ca", s.CA}} {
		unused := s.User != "" && (f.setting == "creds" || f.setting == "nkey")
		if !unused && f.path != "" && !isFile(inContext(f.path)) {
			return fmt.Errorf("the context %q names a file that is not there: %s, as %q in %s: correct the path there, or create the file", name, f.path, f.setting, path)
		}
	}
	return nil
}

// inContext expands a leading ~ as it is meant in a context.
func inContext(path string) string {
	rest, found := strings.CutPrefix(path, "~")
	if u, err := user.Current(); found && err == nil {
		return u.HomeDir + rest
	}
	return path
}
