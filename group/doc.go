// Package group spreads the leadership of many elections evenly over the members of a fleet, as sharded fleets need it.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//		"syscall"
//
//		"github.com/natscampaign/election"
//		"github.com/natscampaign/election/connect"
//		"github.com/natscampaign/election/group"
//	)
//
//	func main() {
//		if err := run(); err != nil {
//			log.Fatal(err)
//		}
//	}
//
//	func run() error {
//		// A signal ends the context: the member hands over its keys, one by one, and leaves.
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		c, err := connect.Connect(ctx, connect.Config{URL: os.Getenv("NATS_URL")})
//		if err != nil {
//			return err
//		}
//		defer c.Close()
//		name, err := os.Hostname() // differs from that of any other member, and stays the same at each start
//		if err != nil {
//			return err
//		}
//		member, err := group.New(name, "shards", []string{"0", "1", "2", "3"}, c.Bucket)
//		if err != nil {
//			return err
//		}
//		return member.Run(ctx, func(ctx context.Context, key string, term election.Term) error {
//			log.Print("Leading shard ", key)
//			<-ctx.Done() // the work on one shard: it must return soon after ctx ends
//			return nil
//		})
//	}
//
// Give all members the same name of the group and the same keys, and each member a name of its own. [Group.Run] does the work of each key
// that the member leads, under a context that ends with that leadership. [Group.Start] only campaigns; then check [Group.Leads]. A member
// leaves when its context ends or [Group.Stop] is called.
//
// A [Group] is a number of keys, each of which is an ordinary election of package election. Each member leads its share of them: where K
// keys are shared by M members, at most ceil(K/M), and no two members differ by more than one. When members join or leave, as few keys
// move as that takes, each in order: the work of its leader ends first, and milliseconds later the next member leads. Nothing else moves
// a key.
//
// # What is guaranteed
//
//   - Safety is that of package election, for each key: leadership ends by the clock, a winner stands down first, and terms carry fencing
//     tokens. Presence and plan decide who campaigns, never who leads. A plan that is wrong, late, lost or made twice costs time or moves,
//     not safety.
//   - Even. Once members have joined or left in order, the spread is even as soon as the work that must move has ended. After a crash the
//     planners know within one TTL and 0.4 s, and the others lead the keys of the crashed member at most one stand-down later; where the
//     bucket does not announce expiries, one campaign interval later still.
//   - Sticky. From one plan to the next, the keys of members that are gone move, and beyond these no more than an even spread takes. A
//     member that comes back under its name within a TTL keeps its keys, and all members keep theirs when the server cannot be reached,
//     however long.
//   - In order. A member that joins takes over its keys from their leaders; a member that leaves hands over all keys before it is gone,
//     while there are others. Each of these keys is without a leader for milliseconds, and for as long as its work takes to end; also where the
//     member that asked for it leaves meanwhile.
//   - Death of a process. Where package witness releases the keys of a member that has died, it ends the member's presence too: the others lead the
//     keys after the settle time. If both planners die together, the others notice only that announcements are overdue.
//   - Able. A key that is assigned to a member, and led neither by it nor by another for one and a half TTLs, goes to a member that can lead it, if
//     there is one: so where a member has no permission for the key, receives no answers about it, is not healthy, or its work for an earlier term
//     has not ended. It takes four TTLs if the member cannot read the key either, and has not led it before. Two TTLs later at the
//     earliest, and twice as long each time up to an hour, the member takes part again, once the server answers a write to the key. A
//     member that cannot write a key takes it over from nobody. Nothing moves because the server cannot be reached, an operator has paused an
//     election, a handover takes long, or something else has the key.
//   - Stray values. A presence counts only if it is whole: it names its member, and a run of that member. If anybody writes something
//     else under its key, or deletes the key, the member writes its presence again at once. Meanwhile the others count it as present for as
//     long as they would have without that. A plan counts only if its number is possible, at most 2^53, and it has an entry for the member
//     that made it; over anything else the planners write the last plan again. A list counts only under its own hash. A stray announcement
//     costs each member a read of the plan now and then. No key moves, and none is without a leader.
//
// # What is not
//
// Even means by number: all keys count alike. Members that do not list the same keys, as in a rolling update that changes them, share each
// key among the members that list it; then the spread is as even as moves of single keys make it, which may not be the best there is. Once all
// list the same keys it is even again.
//
// Leading is not working: a member whose work waits for something else leads on. Let the work return an error, or give election.WithHealthCheck to
// [WithElectionOptions].
//
// Two members cannot have one name: the one that joined first leaves with [ErrReplaced]. So does one of two copies of a process, as of a virtual
// machine that was cloned: whichever finds that the other has written their presence. Until then, a quarter of the TTL at most, both lead
// what the process led, as two copies of any leader do; see docs/REFERENCE.md. Whoever may write the bucket can therefore make a
// member leave, by a whole presence of its name, and move all keys by a whole plan.
//
// # Bounds
//
//   - [MaxMembers] members, 800: each has a consumer on the bucket's stream, of which servers allow 1,000 by default. Start and Run return
//     [ErrFull] to a member that comes when there are as many. A member that gets no consumer, because all are taken or it has no permission, reads
//     its group's records instead: it notices changes up to an eighth of a TTL later.
//   - [MaxKeys] keys, 10,000, of 512 KiB in all: the plan is one message. New refuses more.
//   - 16 different lists of keys at a time, as in rolling updates that change them, and for each member that cannot lead some of its keys.
//     Members with further lists lead only what the plan assigns to them until lists have gone out of use.
//
// For more, make several groups.
//
// # The bucket
//
// Make it with election.CreateBucket or package connect. It may hold other groups and other elections. A group called shards uses the keys
// shards.plan, shards.planner, shards.members.<member> and shards.lists.<hash>, and for each of its keys the election shards.keys.<key>, under
// which the tools of package election know it. Give no other election such a key. Two groups share no key, whatever their members and keys are
// called: New refuses the name of a group that has a part "keys", "members" or "lists" after its first.
//
// A member needs the permissions of a candidate with a connection for these keys, and permission to publish to
// election-control.<bucket>.candidates.shards.keys.> and election-control.<bucket>.transfer.shards.keys.>: see the block ELECTION_MEMBER of
// docs/PERMISSIONS.md. With permission to create a consumer it learns of changes at once.
//
// # How it works
//
// The members agree by one record, the plan, which assigns each key to a member.
//
//   - Presence. Each member keeps a record of its own in the bucket, writes it again every quarter of the bucket's TTL, and last that it
//     leaves. A member is present until it writes that, or until the planners have not seen the record for a TTL.
//   - Planners. Two members receive all presences: the first two in the order of the plan, which are those that have been present longest.
//     When the plan no longer fits the members that are present, the first makes the next plan from the last: present members keep what the
//     last plan assigned to them, up to their share. Should the first fail to, the second does, a second later. Each plan is a
//     compare-and-set over the last, so that no plan has two successors. No planner is elected: after a crash of an elected one, members that
//     join or leave would wait for a plan for up to a TTL. The second planner costs four messages per TTL and member.
//   - The announcement. All others receive one small record, which says which plan is in force. The planners write it with each plan, and
//     again three times per TTL. A member reads the plan only when another one is announced. If the announcement is overdue, the next member
//     in the order claims to plan by writing the announcement itself, and reads the presences: one second later for each that is before it in
//     the order, up to 8. Presences that are stored are as old as the server's clock says, so that a member which crashed with the planners
//     is missed as soon as by them. A group without a plan begins in the same way, by whichever claim the server accepts first.
//   - Lists of keys. A presence says the keys of its member if these are few, and else a hash of the list, which is a record of its own. The
//     plan says which lists its planner knew. A member whose list is missing there writes that list; the planners write the lists in
//     use again, so that they do not expire. Until a list is known its members keep what the plan assigns to them.
//   - Keys given up. A member that could not lead a key lists it no more. If it leads no key at all it lists none. It lists a key again when it may
//     be able to lead it, which it finds out by a write that the server always refuses, or when the plan assigns the key to nobody. So some
//     member campaigns for a key that none can lead, and each member gives such a key up no more often than it would try it again.
//   - Campaigns. A member campaigns for the keys that the plan assigns to it, and for no others. If another member leads such a key, it
//     asks that leader to hand over, after a write that the server always refuses has shown that it can write the key. A leader leads on until it is asked, whatever the plan says: no key is without a leader because of
//     the plan. When the work of a key has ended, its leader looks at the plan again: if that is another than when the leader was asked, the
//     release names the member to which it assigns the key now, or the leader leads the key again. A member that leaves takes over what is on its
//     way to it until it has received a plan without itself, and for a moment longer.
//
// Members that come and go one by one get a plan each, 5 ms later. Where they follow one another without a pause, the planner waits for half of
// the time for which they have: until nobody came or went for 250 ms at most, and no longer than 1 s, or 5 s for the first plan of a group.
// From one plan to the next at least 2 ms pass for each member. A start of five hundred gets one plan, or a few.
//
// One goroutine per member decides all this. A member has one watcher, and an election for each key that is assigned to it. It starts 64
// elections at a time, and has 16 requests to hand over under way. What it cannot do now it does later; it gives up no key because it is
// busy.
//
// # What it costs
//
// In steady state the messages grow with the members and with the keys, and not with one times the other.
//
//   - Per TTL a member causes 23 messages and some 8 KB: four presences that are written, answered, and delivered to the planners and to
//     itself, and three announcements. At a TTL of 15 s that is 1.5 messages per second.
//   - Per TTL a key causes 5 messages: its renewals with their answers, their delivery to the leader and to nobody else. At a TTL of 15 s
//     that is 0.36 messages per second.
//   - Each member reads a new plan once, which has the name of each key, and twice that of each member.
//
// A bucket that does not republish has each member receive the changes of all keys in the bucket.
//
// docs/PERFORMANCE.md has what was measured with up to five hundred members.
package group
