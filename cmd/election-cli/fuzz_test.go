package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// FuzzCommandLine parses command lines without running them. Arguments are separated by newlines.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{
		"drill", "drill\n--processes\n--for=1s\n--fault=kill", "campaign\nscheduler\n-s\nnats://127.0.0.1:4222", "drill\n--lose-replies=1%",
		"--help", "campaign\n\x00", "drill\n--svg=", "@file", "--", "run\n-v\njobs\n--\nenv\n--\n--help", "drill\n--ttl=-1s\n--candidates=99999999999999999999",
	} {
		f.Add(line)
	}
	f.Fuzz(func(_ *testing.T, line string) {
		var out, errs bytes.Buffer
		tool := &tool{stdout: &out, stderr: &errs}
		own, argv := cutProgram(strings.Split(line, "\n"))
		tool.argv = argv
		_, _ = tool.app().ParseContext(own)
	})
}

// FuzzRate reads a part of all replies as it is given on the command line.
func FuzzRate(f *testing.F) {
	for _, text := range []string{"0%", "1%", "100%", "101%", "-1%", "1e-3%", "NaN%", "%", "0.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if rate, err := parseRate(text); err == nil && !(rate >= 0 && rate <= 0.5) {
			t.Errorf("%q is %v", text, rate)
		}
	})
}

// FuzzMarker reads the content of a file that may be a marker, and judges it.
func FuzzMarker(f *testing.F) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	text, err := json.Marshal(aMarker(written))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(text), "", "\x00\x00", "null", "{}", "[]", "hello", `{"marker":"election-cli","ttl_s":1e999}`,
		`{"marker":"election-cli","key":"k","name":"n","term":1,"token":"t","written":"0001-01-02T00:00:00Z","expiry":"9999-12-31T23:59:59Z","ttl_s":3600}`} {
		f.Add([]byte(s), int64(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, after int64) {
		m, err := parseMarker(text)
		if err != nil {
			return
		}
		now := written.Add(time.Duration(after))
		if m.doubt(now) == "" && (!now.Before(m.Expiry) || now.Before(m.Written) || m.Expiry.Sub(now) > time.Hour) {
			t.Errorf("%s is trusted at %v", text, now)
		}
		if _, err := json.Marshal(m.shown()); err != nil {
			t.Errorf("%s cannot be shown: %v", text, err)
		}
	})
}

// FuzzPrintable shows text that somebody else wrote.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{
		"web-1", "Gr\u00fc\u00dfe, \u4e16\u754c", "\x1b[2J\x1b]0;title\a", "a\r\nb\t", "\u009b31m", "\u202egnp.exe", "\xff\xfe\xed\xa0\x80", "\ufffd", "\u115f\u2800\u200b\U000e0041",
		strings.Repeat("x", longestText), strings.Repeat("\x00", longestText+1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, harmless := printable(text), true
		for _, r := range text {
			harmless = harmless && visible(r)
		}
		for _, r := range got {
			if !visible(r) {
				t.Errorf("%q is shown with %q", text, r)
			}
		}
		if !utf8.ValidString(got) || len(got) > longestText*len(`\U0010ffff`)+len("\u2026") {
			t.Errorf("%q is shown as %q", text, got)
		}
		if harmless && utf8.ValidString(text) && utf8.RuneCountInString(text) <= longestText && got != text {
			t.Errorf("%q is harmless and shown as %q", text, got)
		}
	})
}

// visible says whether a character leaves a trace where it stands, and none elsewhere.
func visible(r rune) bool {
	return (unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) || r == ' ') && !strings.ContainsRune(unseen, r)
}
