// Package dial has what package connect and the command share about making a connection to NATS: lists of servers, credentials, contexts of
// natscli, and what a candidate is called that is given no name.
package dial

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/natsconn"
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

// CheckURL returns an error for a URL that nats.Connect cannot use. The error shows no secret of the URL.
func CheckURL(s string) error {
	const fix = "write it as nats://HOST:PORT"
	full := s
	if !strings.Contains(full, "://") {
		full = "nats://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("the server URL %q cannot be read: %s", natsconn.WithoutSecrets(s), fix)
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		return fmt.Errorf("the server URL %q has the unknown scheme %q: %s, or with tls, ws or wss in place of nats", natsconn.WithoutSecrets(s), u.Scheme, fix)
	}
	return nil
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

// IsFile reports whether there is a file at the path, after [ExpandHome].
func IsFile(path string) bool { return isFile(ExpandHome(path)) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// Servers returns an option that replaces the servers of a context by those of the list, unless the list is empty.
func Servers(list string) nats.Option {
	return func(o *nats.Options) error {
		if urls := SplitURLs(list); len(urls) > 0 {
			o.Url, o.Servers = "", urls
		}
		return nil
	}
}

// Login returns the options for the credentials that are given, if any, in place of all credentials of a context. A user without a
// password is a token; creds and nkey are files. The error is about the seed in nkey.
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

// TLS returns the options for a certificate with its key, and for the authorities that are trusted in place of the system's. Each is a
// file; an empty path adds nothing. With first the handshake comes before the greeting of the server.
func TLS(cert, key, authorities string, first bool) []nats.Option {
	var opts []nats.Option
	if cert != "" {
		opts = append(opts, nats.ClientCert(ExpandHome(cert), ExpandHome(key)))
	}
	if authorities != "" {
		opts = append(opts, nats.RootCAs(ExpandHome(authorities)))
	}
	if first {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts
}
