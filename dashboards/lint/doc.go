// Package lint tries the dashboard and the rules against the metrics that candidates really show. It is a module of its own,
// so that a program that only wants an election does not depend on Prometheus.
package lint
