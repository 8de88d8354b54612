// Package gocrontest tests the elector in gocron itself. It is a module of its own, so that users of package election do not depend on gocron.
package gocrontest
