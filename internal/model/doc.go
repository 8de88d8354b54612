// Package model is the transition relation of spec/election.pml, written once more in Go. SPIN visits all states of the Promela
// text and checks the promises in each; this package lets Go ask whether a step that the library made is a step of that model.
//
// Each [Transition] has the name that a comment gives it in the Promela text, and each function below a transition has the name of its
// inline. Two tests keep the texts together: one compares the names, the other visits all states of this relation and compares their
// number with SPIN's. Assertions, mutants and messages are left to the Promela text.
//
// Where the Promela text has constants and bits this package has [Limits] and numbers, so that a replay can use real durations and
// revisions: a timer counts down in any unit, a revision is any number, and a bucket may be made again more than once.
package model
