// Package pagetest has a browser look at the page that a candidate serves. It is a module of its own, so that nobody depends
// on what drives a browser who only wants an election.
package pagetest
