package chaos

import (
	"context"

	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/timeutil"
)

// right is something that a candidate may lose.
type right struct {
	what  string
	taken processes.Permissions // the denials that take it
}

// rights are what a revoke takes, in turn or all at once. The right to write the key is not among them, nor that to the
// candidate's own inboxes, without which no write is acknowledged: fault one-way does that.
var rights = []right{
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

// takenBy returns what a revoke of the given variant takes.
func takenBy(variant int) right {
	if n := variant % (len(rights) + 1); n < len(rights) {
		return rights[n]
	}
	all := right{what: "to do anything but to write"}
	for _, r := range rights {
		all.taken.Publish.Deny = append(all.taken.Publish.Deny, r.taken.Publish.Deny...)
		all.taken.Subscribe.Deny = append(all.taken.Subscribe.Deny, r.taken.Subscribe.Deny...)
	}
	return all
}

// injectRevoke takes rights from the user of a candidate, and gives them back.
func injectRevoke(ctx context.Context, d *Drill, i *injury) error {
	r := takenBy(i.variant)
	i.note = "it loses the right " + r.what
	if err := d.cluster.Permit(i.candidate.Name, r.taken); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, i.hold)
	return d.cluster.Permit(i.candidate.Name, processes.Permissions{})
}
