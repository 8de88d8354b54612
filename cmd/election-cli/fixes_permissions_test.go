package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"
)

// candidatesMay is what a candidate of jobs may do, as in docs/PERMISSIONS.md.
var candidatesMay = map[string][]string{
	"publish": {
		"$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$KV.LEADER_ELECTION.jobs", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs", "$JS.API.CONSUMER.CREATE.KV_LEADER_ELECTION.*.$KV.LEADER_ELECTION.>",
		"$JS.API.CONSUMER.DELETE.KV_LEADER_ELECTION.*", "$JS.FC.KV_LEADER_ELECTION.>", "election-control.LEADER_ELECTION.*.jobs", "election-answers.LEADER_ELECTION.*.jobs",
	},
	"subscribe": {"_INBOX_limited.>", "election.LEADER_ELECTION.>", "$KV.LEADER_ELECTION.jobs", "election-control.LEADER_ELECTION.*.jobs", "election-answers.LEADER_ELECTION.*.jobs"},
}

// permissionFixes are the troubles of a user with too few or too many permissions.
var permissionFixes = map[string]map[string]func(*fixing){
	"write-refused": {
		"for all keys": func(f *fixing) { f.withhold("publish", "$KV."); f.mendByGrant(0) },
		"for the key":  func(f *fixing) { f.withhold("publish", "$KV."); f.mendByGrant(1) },
		"the user only reads": func(f *fixing) {
			f.withhold("publish", "$KV.")
			role := "candidate"
			f.mend(func(fix string) {
				f.Expect(fix).To(HaveSuffix("; if this user does not campaign, check with --as observer or --as operator"))
				role = "observer"
			}, "jobs", "--inbox-prefix", "_INBOX_limited", "--as", &role)
		},
	},
	"read-refused": {
		"for all keys":       func(f *fixing) { f.withhold("publish", "$JS.API.DIRECT.GET"); f.mendByGrant(0) },
		"for the tested key": func(f *fixing) { f.withhold("publish", "$JS.API.DIRECT.GET"); f.mendByGrant(1) },
	},
	"watch-refused":     {"": func(f *fixing) { f.withhold("publish", "$JS.API.CONSUMER"); f.mendByGrant(0) }},
	"subscribe-refused": {"": func(f *fixing) { f.withhold("subscribe", "election.LEADER_ELECTION"); f.mendByGrant(0) }},
	"attempts-refused": {
		"for all keys": func(f *fixing) { f.withhold("subscribe", "$KV."); f.mendByGrant(0) },
		"for the key":  func(f *fixing) { f.withhold("subscribe", "$KV."); f.mendByGrant(1) },
	},
	"answers-refused": {
		"of a candidate": func(f *fixing) { f.withhold("publish", "election-answers"); f.mendByGrant(0) },
		"to an operator": func(f *fixing) { f.withhold("subscribe", "election-answers"); f.mendByGrant(0, "--as", "operator") },
	},
	"request-refused": {"": func(f *fixing) { f.withhold("publish", "election-control"); f.mendByGrant(0, "--as", "operator") }},
	"allow-responses": {"": func(f *fixing) {
		p := f.withhold("publish", "election-answers")
		p.Response = &server.ResponsePermission{MaxMsgs: 1}
		f.permit("limited", p)
		f.mend(func(fix string) {
			f.Expect(fix).To(HavePrefix("remove allow_responses, and permit to publish to "))
			p.Response = nil
			f.grant("limited", fix, 0)
		}, "jobs", "--inbox-prefix", "_INBOX_limited")
		f.Expect(f.lookUp("answers-refused", "jobs", "--inbox-prefix", "_INBOX_limited")).To(BeNil())
	}},
	"inboxes-writable": {"": func(f *fixing) {
		p := f.withhold("publish", "election-answers")
		p.Publish.Allow = append(p.Publish.Allow, "_INBOX.>")
		f.permit("limited", p)
		f.mend(func(fix string) {
			f.Expect(fix).To(MatchRegexp("^permit to publish to .* instead"))
			p.Publish.Allow = slices.DeleteFunc(p.Publish.Allow, func(s string) bool { return s == "_INBOX.>" })
			f.grant("limited", fix, 0)
		}, "jobs", "--inbox-prefix", "_INBOX_limited")
		f.Expect(f.lookUp("answers-refused", "jobs", "--inbox-prefix", "_INBOX_limited")).To(BeNil())
	}},
	"inboxes-readable": {"": func(f *fixing) {
		p := f.withhold("subscribe", "_INBOX_limited")
		p.Subscribe.Allow = append(p.Subscribe.Allow, "_INBOX.>")
		f.permit("limited", p)
		inbox := "_INBOX"
		f.mend(func(fix string) {
			f.Expect(fix).To(Equal("permit to subscribe to an inbox prefix of its own instead, such as _INBOX_web.>, and connect with that prefix"))
			p.Subscribe.Allow = append(slices.DeleteFunc(p.Subscribe.Allow, func(s string) bool { return s == "_INBOX.>" }), "_INBOX_web.>")
			f.permit("limited", p)
			inbox = "_INBOX_web"
		}, "jobs", "--inbox-prefix", &inbox)
	}},
}

// withhold has the commands run as a user that may do what a candidate may, but for the subjects that begin with a text.
func (f *fixing) withhold(verb, subject string) *server.Permissions {
	f.T.Helper()
	f.user = "limited"
	p := candidatePermissions(func(v, s string) bool { return v == verb && strings.HasPrefix(s, subject) })
	f.permit("limited", p)
	return p
}

// candidatePermissions returns the permissions of a candidate without some.
func candidatePermissions(without func(verb, subject string) bool) *server.Permissions {
	allowed := map[string]*server.SubjectPermission{}
	for v, subjects := range candidatesMay {
		allowed[v] = &server.SubjectPermission{Allow: slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { return without(v, s) })}
	}
	return &server.Permissions{Publish: allowed["publish"], Subscribe: allowed["subscribe"]}
}

// permit gives a user permissions.
func (f *fixing) permit(user string, p *server.Permissions) {
	f.T.Helper()
	changed := f.options
	changed.Users = nil
	for _, u := range f.options.Users {
		u = new(*u)
		if u.Username == user {
			u.Permissions = p
		}
		changed.Users = append(changed.Users, u)
	}
	f.options = changed
	reloaded := changed
	f.Expect(f.server.ReloadOptions(&reloaded)).To(Succeed())
}

// mendByGrant follows a fix that names a permission, or the given one of several.
func (f *fixing) mendByGrant(alternative int, args ...any) {
	f.T.Helper()
	args = append(args, "--inbox-prefix", "_INBOX_limited")
	if f.code != "read-refused" { // check needs to read the elections that it is given
		args = append(args, "jobs")
	}
	f.mend(func(fix string) { f.grant("limited", fix, alternative) }, args...)
}

var (
	// permissions matches what a fix says to permit: up to the next sentence.
	permissions = regexp.MustCompile(`(?:permit|may)(?: the user of "[^"]+")? (?:to )?(publish|subscribe) to ([^;]+?)(?: instead|;|$|, and (?:subscribe|connect))`)
	// subjects separates the subjects of a list.
	subjects = regexp.MustCompile(`, and | and (?:to )?|, `)
)

// grant gives a user the permission that a fix names; the given one where it names several.
func (f *fixing) grant(user, fix string, alternative int) {
	f.T.Helper()
	i := slices.IndexFunc(f.options.Users, func(u *server.User) bool { return u.Username == user })
	p := f.options.Users[i].Permissions
	found := permissions.FindAllStringSubmatch(fix, -1)
	if m := regexp.MustCompile(`, and subscribe to (\S+)$`).FindStringSubmatch(fix); m != nil {
		found = append(found, []string{"", "subscribe", m[1]})
	}
	f.Expect(found).NotTo(BeEmpty(), fix)
	for _, m := range found {
		alternatives := strings.Split(m[2], ", or to ")
		more := subjects.Split(alternatives[min(alternative, len(alternatives)-1)], -1)
		f.T.Logf("permit to %s to %q", m[1], more)
		if m[1] == "publish" {
			p.Publish.Allow = append(p.Publish.Allow, more...)
		} else {
			p.Subscribe.Allow = append(p.Subscribe.Allow, more...)
		}
	}
	f.permit(user, p)
}
