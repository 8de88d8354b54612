// Package history holds what candidates of an election believed and wrote while faults were injected, and checks it.
//
// Each candidate is a process that appends events to a file of its own with a [Writer]: an event is one line, written
// at once, so that the file of a process that was killed ends with the last thing that happened. All times are readings
// of one clock, that of the machine ([Now]). [Read] turns such a file into [Belief]s, and [Run.Check] compares those of
// all candidates with the records in the stream that leaders append to and with the faults.
//
// A belief is never made longer than it was: it begins after the first true answer of IsLeader and ends before the last
// one was asked for. A process that was stopped believed meanwhile only if its first answer afterwards was true. So two
// beliefs may have overlapped though what is known of them does not; an [Overtaking] shows it all the same.
package history
