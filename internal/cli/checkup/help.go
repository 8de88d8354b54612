package checkup

// Help documents a check, and the JSON fields of a Result.
const Help = `The command is a plugin for Nagios and similar monitoring. It checks the bucket, and that each election KEY has a leader. Without KEY
it checks only the elections that have a leader or are paused, so name each election that must have one: as KEY, or as in
--expect scheduler,reports, which checks all others too.

Example: election-cli check scheduler --format nagios

Exit codes:

    0  OK         there are no warnings and no critical findings
    1  WARNING    leadership does not count yet, a renewal is overdue, an election is paused, nobody would take over from a leader, a process
                  has a copy, or the configuration of the bucket can be improved
    2  CRITICAL   nobody leads, a lease has ended, two candidates claim to lead, or the bucket is missing or unfit for elections
    3  UNKNOWN    the check failed, or wrong usage

Formats are text (for people, the default), nagios (one line with performance data), json, and prometheus (for the textfile
collector of the node exporter). Ages are by the server's clock. If the clock of this host differs from it by more than a second,
that is a finding of severity info.

With --json the result is one object: "status", "error" (if UNKNOWN), "bucket", "server", "ttl_s", "clock_ahead_s" (of this
host's clock), "elections" (as in 'ls --json') and "findings" (each with "key", "code", "severity", "message", "fix"). The codes are
those of the Go package admin, and

    no-bucket, no-leader                  critical
    lease-over, two-leaders               critical
    leader-elect, renewal-overdue         warning
    paused, no-standby, copied-process    warning
    clock-differs, same-name              info

The codes that begin with expect- say how long failovers take, and which outage of the servers a leader survives, for candidates that
renew as often as the present leaders, or at the interval --interval. If the crash of a server would depose leaders, the fix names a TTL and an
interval that prevent it. The text leaves them out if the result is critical, or nobody would take over.

The check of the bucket tests the permissions that the user of this connection needs. Give --as observer for a user that only reads,
and --as operator for one that lists candidates and hands over; without --as the user is a candidate's. The command writes nothing.

A leader alone is the finding no-standby. The candidates are asked for it, so there is no such finding where the leader does not answer, or
this user may not ask; nor for locks, slots, keys of groups and 'run --no-wait', which need no standby.

Without a leader the line of the finding says why, as far as this command can find out, and which command to give next. The text has one
line for each finding, with rounded durations, and a table on a terminal; --verbose writes all that is known.`
