// Package docs_test runs what the documents say.
package docs_test

import (
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}
