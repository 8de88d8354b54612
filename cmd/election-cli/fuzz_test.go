package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/natscampaign/election/internal/cli"
)

// FuzzCommandLine parses command lines without running them. A newline separates two arguments.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{
		"drill", "drill\n--processes\n--for=1s\n--fault=kill", "campaign\nscheduler\n-s\nnats://127.0.0.1:4222", "drill\n--lose-replies=1%",
		"--help", "campaign\n\x00", "drill\n--svg=", "@file", "--", "run\n-v\njobs\n--\nenv\n--\n--help", "drill\n--ttl=-1s\n--candidates=99999999999999999999",
	} {
		f.Add(line)
	}
	f.Fuzz(func(_ *testing.T, line string) {
		var out, errs bytes.Buffer
		env := &cli.Env{Stdout: &out, Stderr: &errs}
		own, argv := cutProgram(strings.Split(line, "\n"))
		env.Argv = argv
		_, _ = app(env).ParseContext(own)
	})
}

// FuzzRate parses the value of --lose-replies.
func FuzzRate(f *testing.F) {
	for _, text := range []string{"0%", "1%", "100%", "101%", "-1%", "1e-3%", "NaN%", "%", "0.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if rate, err := parseRate(text); err == nil && !(rate >= 0 && rate <= 0.5) {
			t.Errorf("%q is parsed as %v", text, rate)
		}
	})
}
