// Package reach is what the library and the tool have in common about reaching NATS: how servers and files are named, how
// credentials replace those of a context, and what of all that may be shown.
package reach

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// SplitURLs splits a list of servers as nats.Connect does.
func SplitURLs(list string) []string {
	var urls []string
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			urls = append(urls, s)
		}
	}
	return urls
}

// CheckURL refuses what nats.Connect could only fail on, without repeating the secrets that it may hold.
func CheckURL(s string) error {
	const way = "write it as nats://HOST:PORT"
	full := s
	if !strings.Contains(full, "://") {
		full = "nats://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("the server URL %q cannot be read: %s", WithoutSecrets(s), way)
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		return fmt.Errorf("the server URL %q has the unknown scheme %q: %s, or with tls, ws or wss in place of nats", WithoutSecrets(s), u.Scheme, way)
	}
	return nil
}

// WithoutSecrets returns a server URL with all before the host removed, for a lone username may be a token.
func WithoutSecrets(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "nats", s
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + "://" + rest
}

// ExpandHome expands a leading ~/, which shells leave alone in a variable and after an equals sign.
func ExpandHome(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// Login returns the options for the credentials that are given, if any, in place of all that a context has. A user without
// a password is a token; creds and nkey are files. The error is about the seed in nkey.
func Login(user, password, creds, nkey string) ([]nats.Option, error) {
	var auth nats.Option
	switch {
	case password != "":
		auth = nats.UserInfo(user, password)
	case user != "":
		auth = nats.Token(user)
	case creds != "":
		auth = nats.UserCredentials(ExpandHome(creds))
	case nkey != "":
		seed, err := nats.NkeyOptionFromSeed(ExpandHome(nkey))
		if err != nil {
			return nil, err
		}
		auth = seed
	default:
		return nil, nil
	}
	forget := func(o *nats.Options) error {
		o.User, o.Password, o.UserInfo = "", "", nil
		o.Token, o.TokenHandler = "", nil
		o.UserJWT, o.Nkey, o.SignatureCB = nil, "", nil
		return nil
	}
	return []nats.Option{forget, auth}, nil
}
