// Package history records what candidates of an election believed and wrote while faults were injected, and checks it.
//
// Each candidate is a process that appends events to its own file with a [Writer]. An event is one line, written at once,
// so the file of a killed process ends with the last event. All times are readings of one clock, the machine's ([host.Clock]).
// [Read] turns a file into [Belief]s. [Run.Check] compares the beliefs of all candidates with the faults and with the
// records that leaders appended to a stream.
//
// A belief is never stretched: it begins after the first true answer of IsLeader and ends before the call that returned the
// last one. A process that was stopped believed meanwhile only if its first answer afterwards was true. So two beliefs may
// have overlapped although their recorded times do not; an [Overtaking] shows the overlap all the same.
package history
