// Package buckets_test tests what CreateBucket makes, mends and refuses, and what candidates do when their bucket changes.
package buckets_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
