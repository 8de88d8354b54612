// Package chaos injects faults into real processes and judges how the election copes with them.
//
// A drill starts a cluster of servers and a number of candidates, each in its own process, and injects faults into processes, links
// and permissions for a given time. It then reads the histories of the candidates and the records of the leaders, and reports:
//
//   - whether two candidates considered themselves leader at once;
//   - whether a candidate considered itself leader although a later leader had appended a record;
//   - whether records and terms were in order;
//   - whether each change of leader had a fault as its cause, and each new leader was in time.
//
// A seed determines the script: the kinds of faults, their order, and their durations. With a fixed interval between faults, the choice
// also depends on which faults still last. Two drills with the same seed still differ, because the timing of processes and networks
// differs, and with it the leader that a fault hits.
//
// When [Drill.Run] returns, no process of the drill is left. Its files remain only if the user asked for them, or the drill failed.
package chaos
