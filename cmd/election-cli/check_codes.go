package main

import (
	"fmt"
	"slices"

	"github.com/natscampaign/election/internal/cli"
)

// findingCodes are the codes of all findings of check: those of package admin and of the elections themselves.
var findingCodes = []string{
	"account-full", "allow-responses", "answers-refused", "attempts-refused", "bucket-full", "claims-disappear", "claims-expire", "clock-differs", "consumers", "copied-bucket",
	"copied-process", "discard-old", "even-replicas", "expect-crash", "expect-eviction", "expect-outage", "expect-release", "history",
	"inboxes-readable", "inboxes-writable", "leader-elect", "lease-over", "markers-long", "markers-plain-names", "memory", "memory-replicated",
	"message-size", "no-bucket", "no-leader", "no-markers", "no-standby", "no-stream-leader", "no-ttl", "not-inspected", "not-pinned",
	"one-replica", "options-unfit", "outlived", "paused", "ping-interval", "read-refused", "reconnect-buffer", "reconnects-limited", "renewal-overdue",
	"releases-expire", "replicas-lagging", "replicas-offline", "republish", "republish-unused", "request-refused", "rollup", "same-name", "session-keys", "stream-settings",
	"subscribe-refused", "ttl-long", "ttl-out-of-range", "ttl-short", "two-leaders", "watch-refused", "write-refused",
}

// checkIgnored returns an error for a code that no finding has: to ignore it would hide nothing, and a misspelt one not what it was given for.
func checkIgnored(code string) error {
	if slices.Contains(findingCodes, code) {
		return nil
	}
	return fmt.Errorf("--ignore: %w (the code of a finding is the word before its colon, such as no-standby)", cli.Unknown("code", code, findingCodes, "%q"))
}
