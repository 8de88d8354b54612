// Package bench measures package election, beside etcd's concurrency.Election where the two can be compared. It is a
// module of its own, so that a program that imports election does not inherit etcd.
//
// All runs against real servers on the loopback interface and on the wall clock. docs/PERFORMANCE.md has the commands,
// what each figure means, and the figures of one run. Plain tests of this package take seconds: they only see to it that
// the benchmarks measure what they say.
package bench
