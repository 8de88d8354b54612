// Package group spreads the leadership of many elections evenly over the members of a fleet, as sharded fleets need it.
//
// A [Group] is a number of keys, each of which is an ordinary election of package election. Each member leads its share of
// them: where K keys are shared by M members, at most ceil(K/M), and no two members differ by more than one. When members
// come or go, as few keys move as that takes, each in order: the work of its leader ends first, then the next one leads,
// milliseconds later. Nothing else moves a key.
//
// # Use
//
// All members are given the same name of the group and the same keys, and each a name of its own. [Group.Run] does the
// work of each key that is led, under a context that ends with that leadership. [Group.Start] only stands; then
// [Group.Leads] tells. A member leaves when its context ends or [Group.Stop] is called.
//
// # How it is done
//
// The members agree by one record, the plan, which says who is to lead which key.
//
//   - Presence. Each member keeps a record of its own in the bucket, writes it again every quarter of the bucket's TTL, and
//     deletes it when it leaves. A member is there until it says that it leaves, or nothing was heard of it for a TTL.
//   - The plan. When it does not fit those that are there any more, one of them makes the next from the last: what it gives
//     to those that are there they keep, up to their share. Each plan is a compare-and-set over the last, so that two
//     cannot be made of the same one. The member that has been there longest plans; should it fail to, the next in line
//     does, a second later. There is no planner to be elected, and none to be missed.
//   - Standing. A member stands in the elections of the keys that the plan gives it, and in no others. Once it stands, and
//     somebody else leads, it asks that leader to hand over to it. Until it is asked, a leader leads on, whatever the plan
//     says: no key is without a leader for the sake of the plan.
//
// One goroutine per member decides all this; a member has one watcher, and an election for each key that it is to lead.
//
// # What is guaranteed
//
//   - Safety is that of package election, for each key: leadership ends by the clock, a winner stands down first, and terms
//     carry fencing tokens. Presence and plan decide who stands, never who leads. A plan that is wrong, late, lost or made
//     twice costs time or moves, not safety.
//   - Even. Once members have joined or left in order, the spread is even as soon as the work that must move has ended. After
//     a crash the others know within one TTL and 0.4 s, and lead the keys of the one that crashed at the latest one
//     stand-down after that; where expiries cannot be heard of, one campaign interval later still.
//   - Sticky. Of one plan to the next, those keys move that belonged to members that are gone, and beyond these no more
//     than it takes to make the spread even. A member that comes back under its name within a TTL keeps its keys, and so
//     do all of them when the server was out of reach, however long.
//   - In order. A member that joins takes over what it is to lead from its leaders; one that leaves hands over all it leads
//     before it is gone, while there are others. Each such key is without a leader for milliseconds, and for as long as
//     its work takes to end.
//
// # What is not
//
// Even means by number: keys are all alike. Members that do not list the same keys, as in a rolling update that changes
// them, share each key among those that list it; then the spread is as even as moves of single keys make it, which may not
// be the best there is. Once all list the same it is even again.
//
// A member that is there and cannot lead, because its work never begins or its elections fail, keeps its share: let it
// return an error. Two members of one name cannot be: the one that joined first leaves with [ErrReplaced].
//
// # The bucket
//
// It is that of package election, best made by election.CreateBucket, and may hold other groups and other elections. For a
// group called shards there are shards.plan, shards.members.<member>, and for each key the election shards.keys.<key>, which
// the tools of package election know by that name. A member needs the permissions of a candidate that was given
// election.WithJetStream, for these keys, that to create a consumer, and that to publish to
// election-control.<bucket>.candidates.shards.keys.> and election-control.<bucket>.transfer.shards.keys.>.
package group
