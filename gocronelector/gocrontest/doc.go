// Package gocrontest tries the elector in gocron itself. It is a module of its own, so that nobody depends on gocron who
// does not use it.
package gocrontest
