// Package compare measures package election and other ways to elect a leader under the same faults: a link that is cut in silence, an
// orderly stop, and the death of the leader's process. It is a module of its own, because it imports etcd, client-go and more.
//
// Each candidate is a process in a network namespace of its own, joined to the servers by a virtual Ethernet link. A cut takes the link
// out of its bridge: packets vanish both ways, and neither end notices. That needs Linux and root:
//
//	go test -run Comparison -compare -v -timeout 10m .
//
// docs/COMPARISON.md has the figures of one run, and says what they mean. Without -compare the tests of this package take seconds.
package compare
