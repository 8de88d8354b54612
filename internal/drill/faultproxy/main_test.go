package faultproxy_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The link must leave no goroutine behind, whatever state its connections were in.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
