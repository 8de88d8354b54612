// Package lint tries the dashboard and the rules against the metrics that candidates really show. It is a module of its own,
// so that nobody depends on Prometheus who only wants an election.
package lint
