// Package processes runs NATS servers and candidates as separate processes, so that a drill can kill, stop and disconnect them.
//
// A process is this program again, in the role of a server or of a candidate ([Run]). A process ends when its standard input ends, so no
// process outlives the drill that started it, however the drill ends. A server may also be a nats-server program of another version: the
// process in the role of that server starts the program in its own process group, to which all signals go, and ends the program with itself. The
// drill asks every server over HTTP whether it is ready, has reloaded its configuration, and has caught up.
//
// A candidate appends to its own history file when it considers itself leader and when it no longer does. While it leads, it appends
// records to a stream; the stream refuses the records of a deposed leader. The [Link] between a candidate and the servers belongs to the
// drill, so the link keeps working while the candidate's process is stopped or gone.
//
// The processes listen on the loopback interface only. Processes can be stopped and continued on Linux and macOS only; on other systems
// the package compiles, and the caller must refuse to use it.
package processes
