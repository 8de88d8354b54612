package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// healthCase is a check with the error that it returns; "" for none.
type healthCase struct {
	flags HealthFlags
	says  string
}

// expectHealth runs the checks that flags ask for.
func expectHealth(t *testing.T, cases map[string]healthCase) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.flags.Check()).To(Succeed())
			limit := timeLimit
			if strings.Contains(c.says, "too long") || strings.Contains(c.says, "deadline exceeded") {
				limit = time.Second // which only a check that hangs may reach
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var err error
			switch {
			case c.flags.url != "":
				err = c.flags.checkURL(ctx)
			case c.flags.file != "":
				err = c.flags.checkFile(ctx)
			default:
				err = c.flags.checkCommand(ctx, (*exec.Cmd).Run)
			}
			if c.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(MatchRegexp(c.says)))
		})
	}
}

func TestHealthOfAURLIsItsStatus(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/failing", http.StatusFound)
		case "/failing":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/hanging":
			<-ended
		}
	}))
	defer s.Close()
	defer close(ended)
	gone := httptest.NewServer(nil)
	gone.Close()
	expectHealth(t, map[string]healthCase{
		"healthy":  {HealthFlags{url: s.URL}, ""},
		"redirect": {HealthFlags{url: s.URL + "/moved"}, ""},
		"failing":  {HealthFlags{url: s.URL + "/failing"}, `^--health-url: GET http://127.*/failing: status 503 Service Unavailable$`},
		"secret":   {HealthFlags{url: "http://me:secret@" + s.Listener.Addr().String() + "/failing"}, `me:xxxxx@`},
		"hanging":  {HealthFlags{url: s.URL + "/hanging"}, `^--health-url: .*deadline exceeded`},
		"crashed":  {HealthFlags{url: gone.URL}, `^--health-url: .*refused`},
	})
}

func TestHealthOfAFileIsItsAge(t *testing.T) {
	g := NewWithT(t)
	changed := func(name string, at time.Time) string {
		path := filepath.Join(t.TempDir(), name)
		g.Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
		g.Expect(os.Chtimes(path, at, at)).To(Succeed())
		return path
	}
	old := changed("old", time.Now().Add(-time.Minute))
	expectHealth(t, map[string]healthCase{
		"fresh":    {HealthFlags{file: changed("fresh", time.Now())}, ""},
		"old":      {HealthFlags{file: old}, `^--health-file: .*old was last changed 1m0.*s ago, and must change within 30s$`},
		"old, yet": {HealthFlags{file: old, maxAge: time.Hour, maxAgeSet: true}, ""},
		"future":   {HealthFlags{file: changed("future", time.Now().Add(time.Hour))}, `in the future`},
		"missing":  {HealthFlags{file: filepath.Join(t.TempDir(), "no")}, `^--health-file: .*no: no such file|cannot find`},
	})
}

func TestHealthOfACommandIsItsExitCode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	g := NewWithT(t)
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "check")
		g.Expect(os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700)).To(Succeed())
		return "sh " + path + " a  b"
	}
	began := time.Now()
	expectHealth(t, map[string]healthCase{
		"healthy":    {HealthFlags{command: script(`test "$*" = "a b"`)}, ""},
		"failing":    {HealthFlags{command: script("echo why >&2; exit 3")}, `^--health-command: sh .*/check a  b: exit status 3: why$`},
		"silent":     {HealthFlags{command: script("exit 3")}, `exit status 3$`},
		"talkative":  {HealthFlags{command: script("yes | head -c 100000; exit 3")}, `exit status 3: y`},
		"hanging":    {HealthFlags{command: script("sleep 60")}, `took too long and was killed$`},
		"descendant": {HealthFlags{command: script("sleep 60 & wait")}, `took too long and was killed$`},
	})
	g.Expect(time.Since(began)).To(BeNumerically("<", time.Minute), "no check waits until the sleep is over")
}

func TestHealthFlagsThatCannotBeUsedAreRefused(t *testing.T) {
	for says, h := range map[string]HealthFlags{
		"--health-url":            {url: "localhost:8080"},
		"no.such":                 {command: "no.such -x"},
		"is empty":                {command: "  "},
		"needs --health-file":     {url: "http://a", maxAgeSet: true, maxAge: time.Second},
		"--health-max-age -1s":    {file: "f", maxAgeSet: true, maxAge: -time.Second},
		"--health-failures 0":     {file: "f", failuresSet: true},
		"--health-failures needs": {failuresSet: true, failures: 3},
	} {
		g := NewWithT(t)
		g.Expect(h.Check()).To(MatchError(ContainSubstring(says)))
	}
	NewWithT(t).Expect((&HealthFlags{}).Check()).To(Succeed())
	NewWithT(t).Expect((&HealthFlags{}).Options(nil, nil)).To(BeEmpty())
}
