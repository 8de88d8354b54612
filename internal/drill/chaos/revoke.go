package chaos

import (
	"context"

	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/timeutil"
)

// revocation is a permission that a candidate loses.
type revocation struct {
	permission string                // in words
	denials    processes.Permissions // that revoke it
}

// revocations has the revocations that a revoke chooses from; it may also choose all at once. No revocation denies writing the key. None
// denies the candidate's inboxes either, because then no write would be acknowledged, as in the fault one-way.
var revocations = []revocation{
	{"to read the key", processes.Permissions{Publish: processes.Subjects{Deny: []string{
		"$JS.API.DIRECT.GET.KV_" + processes.Bucket, "$JS.API.DIRECT.GET.KV_" + processes.Bucket + ".>", "$JS.API.STREAM.MSG.GET.KV_" + processes.Bucket,
	}}}},
	{"to read the stream's info", processes.Permissions{Publish: processes.Subjects{Deny: []string{"$JS.API.STREAM.INFO.KV_" + processes.Bucket}}}},
	{"to subscribe", processes.Permissions{
		Publish: processes.Subjects{Deny: []string{"$JS.API.CONSUMER.>"}},
		Subscribe: processes.Subjects{Deny: []string{
			"election." + processes.Bucket + ".>", "$KV." + processes.Bucket + ".>", "election-control." + processes.Bucket + ".>", "$SRV.>",
		}},
	}},
}

// revocationFor returns the revocation of a variant.
func revocationFor(variant int) revocation {
	if n := variant % (len(revocations) + 1); n < len(revocations) {
		return revocations[n]
	}
	all := revocation{permission: "for everything except writes"}
	for _, r := range revocations {
		all.denials.Publish.Deny = append(all.denials.Publish.Deny, r.denials.Publish.Deny...)
		all.denials.Subscribe.Deny = append(all.denials.Subscribe.Deny, r.denials.Subscribe.Deny...)
	}
	return all
}

// injectRevoke revokes permissions of a candidate's user, and restores them.
func injectRevoke(ctx context.Context, d *Drill, f *fault) error {
	r := revocationFor(f.variant)
	f.detail = "it loses permission " + r.permission
	if err := d.cluster.SetPermissions(f.candidate.Name, r.denials); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, f.duration)
	return d.cluster.SetPermissions(f.candidate.Name, processes.Permissions{})
}
