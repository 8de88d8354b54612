/*
 * The election protocol of this module as a model that SPIN checks exhaustively: see docs/MODEL.md, and run spec/check.sh.
 *
 * A comment in square brackets names the function of the library that a transition follows, "P…" the promise that an assertion states.
 * Time advances in ticks, and only while nothing is due for anybody who is not in trouble: see Clock. Timers count down, so no time is
 * absolute. Revisions are ranks, made small again after each write: see squeeze. So the states are finitely many and runs endless.
 */
#ifndef N
#define N 2       /* candidates */
#endif
#ifndef FAULTS
#define FAULTS 3  /* of all kinds, until somebody leads in peace again */
#endif
#ifndef SLIPS
#define SLIPS 1   /* ticks by which the clocks of candidates err, likewise */
#endif
#ifndef EARLY
#define EARLY 2   /* ticks by which the server expires keys too early at most; LATE: too late */
#endif
#ifndef FORGERY
#define FORGERY 1 /* what a forged notification costs of the faults */
#endif
#define LATE 1
#define TTL 4
#define INTERVAL 2
#define MARGIN 1
#define STAND_DOWN INTERVAL
#define LEASE (TTL - MARGIN)
/* docs/MODEL.md, the inequalities: no two leaders if STAND_DOWN + MARGIN >= EARLY + SLIPS */
#ifndef LAPSE
#define LAPSE (LEASE + SLIPS)  /* after which a lease that was seen to begin has lapsed, by the clock of who saw it [Candidate.lapsesAt] */
#endif

#define STRANGER N          /* anybody else, whose record may be a copy of the holder's; also a candidate that crashed */
#define BARE (N + 1)        /* a stranger whose record does not say how long its lease is */
#define LONG (N + 2)        /* a stranger whose record states a lease that is longer than the TTL */
#define NOTHING   1         /* kinds of what is stored under the key: nothing, not even a marker [record.Gone] */
#define MARKER    2         /* of an expiry */
#define TOMBSTONE 3         /* of a deletion */
#define RECORD    4         /* of a holder */
#define RELEASE   5
#define BLIND     6         /* the key could not be read */
#define LAPSED    7         /* of a holder whose lease is over, as whoever reads it knows [Candidate.hasLapsed] */
#define OUTLIVED  8         /* what should have expired, as its reader knows [Candidate.outlived] */

#define CANDIDATE 0         /* states; the program counter of [Candidate.Next] */
#define ELECT     1
#define LEADER    2
#define DRAIN     3         /* leadership has ended, the key is kept until work has returned [releasing.waited] */

#define FINE      0         /* links and processes: */
#define CUT       1         /* no message passes */
#define MUTE      2         /* requests arrive, no reply does */
#define HOLDING   3         /* writes are held up, and arrive after their sender gave them up */
#define FROZEN    4         /* the process is stopped */
#define HANGING   5         /* the work does not return */
#define NOINFO    6         /* the bucket's info cannot be loaded */

typedef Rec {               /* what is stored under the key, or travels to it */
	byte kind, own, rev, age;
	byte lease;             /* what this write would earn its writer that still knows the attempt [doubt.writes]; 0 if none does */
	byte left;              /* stand_down_ms */
	bit named, old;         /* the release names successors; written for an earlier incarnation of the bucket */
	bit stays               /* it never expires */
}
typedef Cand {
	byte st, link;
	byte rev, num, highest; /* [Term.revision, Term.Number, key.highest] */
	byte lease, counts, next; /* until the deadline, until the stand-down is over, until it renews or campaigns */
	byte seen, seenRev, seenLeft; bit seenOwn, seenNamed, seenOld; /* what was read; its write is about to follow [Candidate.acquisitionOver] */
	byte sight, lapse;      /* the revision of another's write that it saw, or was notified of; until that write's lease has lapsed [key.lastWrite] */
	byte sent;              /* what an applied write earns whose reply waits for a frozen process, plus 1 */
	bit ready;              /* it was sent after the stand-down */
	bit work, led, unsure, failed, pending, givenUp, removed, outdated, former; /* outdated, former: what it knows of the bucket is old, its term is of the old one */
	bit unanswered;         /* its last write was not answered [reading.repliesDoubtful] */
	bit excused, odd, acked, /* only for assertions: history changed under its term; under what it read; its win was acknowledged; */
	    stale, oddSight     /* and it has not renewed since; history changed under what it saw, and it did not notice */
}
Rec key, copy, late;        /* the key; an earlier version, as of a backup or a lagging replica; a write that is held up */
bit isCopy, isLate, lateOdd;
byte seq, copySeq, over;    /* the last sequence of the stream; what the late write demands */
byte top;                   /* number of the last term that was led */
bit gap;                    /* the next revision is none that anybody knows */
byte faults = FAULTS, slips = SLIPS;
Cand c[N];

int used; byte x, y, sd, exp, b, ok;  /* scratch, 0 between two transitions */
#define done used = 0; x = 0; y = 0; sd = 0; exp = 0; b = 0; ok = 0

#define holder(i)  (c[i].st != CANDIDATE)
#define leads(i)   (c[i].st == LEADER && c[i].lease > 0)                        /* [Lease.Left], P1 */
#define busy(i)    (holder(i) && c[i].work && c[i].led && c[i].lease > 0)       /* it leads, or its work still returns in order */
#define up(i)      (reaches(i) || c[i].link == HANGING)
#define reaches(i) (c[i].link == FINE || c[i].link == NOINFO)
#define cutOff(i)  (c[i].link == CUT || c[i].link == MUTE || c[i].link == HOLDING)
#define idle(i)    (c[i].st == CANDIDATE && !c[i].work && !c[i].seen && !c[i].sent)
#define writes(i)  (c[i].seen && !c[i].sent)
#define renews(i)  (holder(i) && !c[i].sent && c[i].next == 0 && (c[i].st != DRAIN || c[i].work))
#define stillDue(i) (c[i].led -> 0 : c[i].counts)                               /* of its stand-down [Candidate.renewal] */
#define vacant     (key.kind != RECORD)
#define mine(r,i)  (r.kind == RECORD && r.own == i)
#define writtenBy(r,i) ((r.kind == RECORD || r.kind == RELEASE) && r.own == i)
/* a notification leads to a read that tells a holder something: it costs no fault, so it must change something */
#define tells(r,i) (c[i].next > 0 && (writtenBy(r,i) -> r.rev > c[i].rev : \
	r.kind != NOTHING && (r.rev >= c[i].num || c[i].former && !r.old) || !c[i].unsure && (r.kind == NOTHING || r.kind == RECORD)))
#define atMost(a,m) (a < m -> a : m)
#define lessOne(v) v = (v > 0 -> v - 1 : 0)
#define name(i)    ('A' + i)

#if N == 3
#define anyOf(f) (f(0) || f(1) || f(2))
#define allOf(f) (f(0) && f(1) && f(2))
#else
#define anyOf(f) (f(0) || f(1))
#define allOf(f) (f(0) && f(1))
#endif
#ifdef RELEASE_EARLY
#define releases(i) (c[i].st == DRAIN && !c[i].sent && c[i].link != FROZEN && (c[i].work || c[i].next == 0))
#else
#define releases(i) (c[i].st == DRAIN && !c[i].sent && c[i].link != FROZEN && !c[i].work && c[i].next == 0)
#endif
#ifdef IGNORE_LOWER_REVISIONS
#define LOWER 0
#else
#define LOWER 1
#endif

/* ---- revisions: only their order and equality matter ---- */
#define use(v)   used = used | (1 << (v))
#define close(v) v = (v > y -> v - 1 : v)
#define everyRevision(f) f(key.rev); f(seq); f(copy.rev); f(copySeq); f(over); f(top); \
	x = 0; do :: x < N -> f(c[x].rev); f(c[x].num); f(c[x].highest); f(c[x].seenRev); f(c[x].sight); x++ :: else -> break od
inline forgetSight(i) { c[i].sight = 0; c[i].lapse = 0; c[i].oddSight = 0 }
#define sees(i) (c[i].sight > 0)
#ifdef FREEZE_SIGHT        /* a write that is yet to come may be announced, and its notification does not replace that */
#define ANNOUNCED 2
#define replaces(i,v) (c[i].sight < v)
#define mayMatter(i) (c[i].sight == key.rev || c[i].sight > seq)
#define announced used = used | (2 << seq) | (4 << seq)
#else
#define replaces(i,v) (c[i].sight != v)
#define mayMatter(i) (c[i].sight == key.rev || isCopy && c[i].sight == copy.rev)
#define announced skip
#endif
/* A sighting is a revision and a stamp. What has another stamp is forged, or of a history that went back, and no read will show it: it is forgotten. */
#ifdef BELIEVE_SHORT
#define believed(o) (o == BARE -> TTL + LATE : (o == LONG -> TTL + SLIPS : (o == STRANGER -> 1 : LAPSE)))
#else
#define believed(o) (o == BARE -> TTL + LATE : (o == LONG -> TTL + SLIPS : LAPSE))   /* [Candidate.believed] */
#endif
inline see(i, rv, wh) { if :: replaces(i, rv) -> c[i].sight = rv; c[i].lapse = believed(wh); c[i].oddSight = 0 :: else fi }
inline squeeze() {                                                                /* no number is left out below the highest */
	x = 0; do :: x < N -> if :: !mayMatter(x) -> forgetSight(x) :: else fi; x++ :: else -> break od;
	everyRevision(use); announced; y = 1;
	do :: (used >> y) == 0 -> break
	:: (used >> y) != 0 && (used >> y) & 1 -> y++
	:: (used >> y) != 0 && !((used >> y) & 1) -> everyRevision(close); used = 0; everyRevision(use); announced
	od;
	gap = 0
}
#define shift(v) v = (v > seq -> v + 1 : v)

/* store puts a record of writer w under the key. P10: nobody writes over what another holds whose lease is not over, unless history was changed. */
inline store(wh, kd, sl, nmd, ob, ln, isOdd) {
	if :: key.kind == RECORD && key.own != wh && key.own < N && wh < N ->
		assert(isOdd || c[key.own].excused || !holder(key.own) || c[key.own].lease == 0); /* P10, P7 */
		c[key.own].excused = holder(key.own); c[key.own].stale = holder(key.own)
	:: else fi;
	seq++; key.kind = kd; key.own = wh; key.rev = seq; key.age = 0; key.left = sl; key.named = nmd; key.old = ob; key.lease = ln; key.stays = 0
}
inline clearKey(kd) {
	if :: kd != NOTHING -> seq++; key.rev = seq :: else -> key.rev = 0 fi;
	key.kind = kd; key.own = STRANGER; key.age = 0; key.left = 0; key.named = 0; key.old = 0; key.lease = 0; key.stays = 0
}
/* forget ends what candidate i remembers of a term, a read or an attempt, so that equal states are one. */
inline unread(i)  { c[i].seen = 0; c[i].seenRev = 0; c[i].seenLeft = 0; c[i].seenOwn = 0; c[i].seenNamed = 0; c[i].seenOld = 0; c[i].odd = 0 }
inline unpend(i)  {                                                               /* clear(pending) */
	c[i].pending = 0;
	if :: key.own == i -> key.lease = 0 :: else fi; if :: isLate && late.own == i -> late.lease = 0 :: else fi;
	if :: isCopy && copy.own == i -> copy.lease = 0 :: else fi
}
inline over_(i) {                                                                 /* the end of [releasing.endTerm] */
	c[i].givenUp = c[i].givenUp | c[i].pending; c[i].unanswered = c[i].pending; unpend(i);
	c[i].st = CANDIDATE; c[i].rev = 0; c[i].num = 0; c[i].lease = 0; c[i].counts = 0; c[i].next = INTERVAL; c[i].sent = 0; c[i].ready = 0;
	c[i].led = 0; c[i].unsure = 0; c[i].failed = 0; c[i].former = 0; c[i].excused = 0; c[i].acked = 0; c[i].stale = 0
}
inline lose(i) {                                                                  /* [Candidate.endLeadership] with proof of a loss */
	assert(!mine(key, i) || c[i].excused);                                       /* P6 */
	printf("%c has proof that it lost the key, and stands down\n", name(i)); over_(i)
}
inline lead(i) {                                                                  /* leadership counts from here [Candidate.beginToLead] */
	printf("%c leads in the term of revision %d\n", name(i), c[i].num);
	c[i].st = LEADER; c[i].led = 1; c[i].work = 1;
	assert(c[i].acked);                                                          /* P7: by a win that was acknowledged */
	x = 0; do :: x < N -> assert(x == i || !busy(x) || c[x].excused || c[i].excused); x++ :: else -> break od;   /* P2, P3 */
	assert(c[i].num > top || c[i].excused);                                      /* P5 */
	if :: !c[i].excused -> top = c[i].num :: else fi
}
#define due(i) c[i].next = (c[i].st == ELECT && c[i].counts <= INTERVAL -> c[i].counts : INTERVAL)   /* [Term.due] */

/* ---- winning ---- */
inline standDown(i) {                                                             /* [acquisition.standDown], P2 */
	b = (c[i].seen == TOMBSTONE) || (c[i].seen == NOTHING || c[i].seen == BLIND -> c[i].removed : c[i].seenRev < c[i].highest);
	if
	:: b || (c[i].seen == RELEASE || c[i].seen == RECORD || c[i].seen == LAPSED) && c[i].seenOld != c[i].outdated -> sd = TTL
	:: else -> sd = (c[i].seen == RELEASE || c[i].seen == LAPSED -> c[i].seenLeft : (c[i].seenLeft > STAND_DOWN -> c[i].seenLeft : STAND_DOWN))
	fi;
#ifdef FORGET_REMOVAL
	sd = atMost(sd, STAND_DOWN);
#endif
}
/* newTerm: the write of candidate i is acknowledged, sent so long ago that l is left of the lease that it earns. [bidding.won, bidding.keep] */
inline newTerm(i, ln) {
	standDown(i); b = c[i].seen == RELEASE && c[i].seenNamed && sd == 0; ok = 0; /* record.Leads, when the write was sent */
	if :: c[i].seen == RELEASE && c[i].seenOld == c[i].outdated && c[i].sent == 0 -> skip   /* [acquisition.verified] */
	:: else -> if
		:: c[i].link == NOINFO -> ok = 1                                         /* [Candidate.holdKey] */
		:: else -> ok = b; c[i].highest = (c[i].outdated -> 0 : c[i].highest); c[i].outdated = 0; standDown(i); b = ok && sd == 0; ok = 0 fi fi;
	c[i].st = (ok -> DRAIN : ELECT); c[i].num = c[i].rev;
#ifdef REPEAT_NUMBERS
	c[i].num = 1;
#endif
	 c[i].unanswered = 0; c[i].lease = ln; c[i].counts = sd; c[i].former = c[i].outdated; c[i].excused = c[i].odd; c[i].acked = 1; c[i].stale = 0; forgetSight(i);
	c[i].sent = 0; c[i].removed = 0; c[i].highest = (c[i].rev > c[i].highest -> c[i].rev : c[i].highest); due(i); unread(i);
	if :: ok -> printf("%c cannot load the bucket's info, and does not keep the key\n", name(i)); c[i].next = 0
	:: else -> printf("%c is leader-elect in revision %d, stand-down %d\n", name(i), c[i].num, sd) fi;
	if :: ln == 0 && !ok -> over_(i) :: else ->
		if :: b && !ok -> lead(i); due(i) :: else fi fi                          /* [Candidate.holdKey] */
}

/* campaign step 1: read the key [bidding.takeRead]. A candidate reads when its campaign is due, or when a notification is reason to, which may be
   missed, late or forged: so it may read whenever the key is vacant, and need not. r is the key, or what a lagging replica has. */
inline read(i, ent) {
	c[i].highest = (ent.rev > c[i].highest && ent.kind != NOTHING -> ent.rev : c[i].highest);
	if :: (ent.kind == RECORD || ent.kind == RELEASE) && !ent.old && c[i].outdated -> c[i].outdated = 0; c[i].highest = ent.rev :: else fi;  /* a newer bucket */
	if
	:: ent.kind == RECORD && ent.own != i -> c[i].next = INTERVAL;                      /* [bidding.decide]: held */
		if :: c[i].removed || ent.rev < c[i].highest -> forgetSight(i) :: else -> see(i, ent.rev, ent.own) fi; c[i].removed = 0
	:: else ->
		c[i].seen = ent.kind; c[i].seenOwn = (ent.own == i);
		if :: ent.kind == NOTHING -> c[i].seenRev = 0 :: else -> c[i].seenRev = ent.rev fi;
		c[i].seenLeft = ent.left; c[i].seenNamed = ent.named && ent.own != i; c[i].seenOld = ent.old;
		c[i].removed = c[i].removed || ent.kind == TOMBSTONE;                         /* it is remembered where the next read fails [Candidate.learn] */
#ifdef ADOPT_GHOSTS
		if :: ent.kind == RECORD -> c[i].rev = ent.rev; newTerm(i, LEASE); c[i].acked = 0 :: else fi
#endif
	fi
}
/* where the key could not be read the client creates it, for which it reads and overwrites a marker [Op.Create] */
#define demands(i) (c[i].seen == BLIND && (key.kind == MARKER || key.kind == TOMBSTONE) -> key.rev : \
	(c[i].seen == NOTHING || c[i].seen == BLIND -> 0 : c[i].seenRev))
/* campaign step 2: write over exactly what was read [bidding.contest, acquisition.writeOp]. win: the write is applied if the key is as it was read. */
inline win(i) {
	standDown(i);
	exp = demands(i);
	ok = (key.rev == exp);
	if
	:: ok && key.kind == TOMBSTONE && c[i].seen == BLIND && sd < TTL ->           /* the winner is not notified: excused */
		x = 0; do :: x < N -> if :: holder(x) -> c[x].excused = 1 :: else fi; x++ :: else -> break od
	:: else fi;
	if
	:: ok && c[i].seen == LAPSED ->
		x = 0; do                                                                    /* P2: nobody leads, but who has renewed since history was changed */
		:: x < N -> assert(x == i || sd > 0 || c[i].odd || !busy(x) || c[x].excused && !c[x].stale); x++
		:: else -> break od
	:: else fi;
	if :: ok -> store(i, RECORD, sd, 0, c[i].outdated, 0, c[i].odd) :: else fi
}
#define statesLease(r) (r.own != BARE)                                            /* what does not is OUTLIVED */
#define lapsed(i,r) (c[i].sight > 0 && c[i].lapse == 0 && r.kind == RECORD && r.own != i && r.rev == c[i].sight && c[i].highest <= r.rev && \
	!c[i].removed && r.old == c[i].outdated)
inline takeOver(i, ent) {                                                         /* ent was read, and stands unchanged for long enough */
	printf("%c reads the key, whose holder's lease has lapsed\n", name(i));
	c[i].seen = (statesLease(ent) -> LAPSED : OUTLIVED); c[i].seenRev = ent.rev; c[i].seenLeft = ent.left; c[i].seenOwn = 0; c[i].seenNamed = 0; c[i].seenOld = ent.old;
	c[i].odd = c[i].oddSight; c[i].highest = ent.rev
}
inline lost(i) { printf("%c does not win\n", name(i)); unread(i); c[i].next = INTERVAL; c[i].unanswered = 0 }
inline hold(i, kd, sl, nmd, ln, dm) {                                               /* the write is held up, and may arrive whenever it likes */
	if :: !isLate -> isLate = 1; lateOdd = c[i].odd | c[i].excused; late.kind = kd; late.own = i; late.left = sl; late.named = nmd; late.old = c[i].outdated;
		late.lease = ln; over = dm :: else fi
}

/* ---- holding the key ---- */
/* confirm: a write is known to be applied that earns a lease of l [renewing.extend, Candidate.extend]; rdy: it was sent after the stand-down. */
inline confirm(i, ln, rdy) {
	c[i].unsure = c[i].unsure | c[i].failed | (LEASE - c[i].lease > INTERVAL);
	if :: c[i].unsure && up(i) && c[i].link != NOINFO -> c[i].unsure = 0; c[i].highest = (c[i].outdated -> c[i].rev : c[i].highest); c[i].outdated = 0 :: else fi;
	if
	:: !c[i].unsure && !c[i].outdated && c[i].former -> printf("%c finds that the bucket was made again\n", name(i)); over_(i)
	:: else ->
		c[i].lease = ln; c[i].failed = 0; c[i].sent = 0; unpend(i); c[i].removed = 0; c[i].stale = 0;
		c[i].highest = (c[i].rev > c[i].highest -> c[i].rev : c[i].highest);
		if :: c[i].st == ELECT && rdy -> lead(i) :: else fi;
		due(i); c[i].ready = 0
	fi
}
inline retry(i) { c[i].failed = 1; c[i].next = 1 }                               /* [renewing.failed] */
/* resolve: a renewal was refused; nm: the refusal names the last sequence; r was read, unless rd is 0. [Candidate.resolve, Candidate.interpret] */
inline resolve(i, nm, rd, ent) {
	ok = (ent.kind == RECORD || ent.kind == RELEASE);                                /* something is kept there */
	b = rd && ent.kind != NOTHING && (ent.rev >= c[i].rev || ok && !ent.old && c[i].former);  /* and at least as new as our last write */
	exp = (nm && key.rev > 0 && key.rev < c[i].rev) || (rd && ok && ent.own != i && ent.rev > c[i].num && ent.rev < c[i].rev); /* proof of a loss */
	if
	:: LOWER && nm && key.rev > 0 && key.rev < c[i].rev -> lose(i)               /* rewound */
	:: else -> if
	:: b && ok && ent.own == i && ent.rev >= c[i].rev && ent.kind == RELEASE -> lose(i)  /* a late release of an earlier term of its own */
	:: b && ok && ent.own == i && ent.rev >= c[i].rev && ent.kind == RECORD ->
		c[i].rev = ent.rev;                                                          /* [Candidate.adopt] */
		if :: ent.lease > 0 -> sd = ent.lease; ok = (ent.left == 0); confirm(i, sd, ok) :: else -> retry(i) fi
	:: b && !(ok && ent.own == i) -> lose(i)                                         /* theirs, or deleted */
	:: else -> if
	:: LOWER && rd && ent.kind != NOTHING && !(ok && ent.own == i) && ent.rev >= c[i].num -> lose(i)   /* displaced */
	:: else -> if
	:: nm && (key.rev == 0 || rd && ent.kind == NOTHING && !c[i].pending && (!c[i].givenUp || c[i].failed)) -> lose(i)
	:: else -> if
	:: nm && key.rev > c[i].rev && !c[i].pending && !rd && !c[i].givenUp -> lose(i)
	:: else -> retry(i)
	fi fi fi fi fi;
	assert(!exp || c[i].st != LEADER)                                            /* P11 */
}
/* verify: a holder reads the key on account of a notification. [Candidate.verify] */
inline verify(i, ent) {
	printf("%c is notified, and reads the key\n", name(i));
	ok = (ent.kind == RECORD || ent.kind == RELEASE);
	b = ent.kind != NOTHING && (ent.rev >= c[i].rev || ok && !ent.old && c[i].former);
	if
	:: writtenBy(ent,i) && ent.rev >= c[i].rev && ent.kind == RELEASE -> lose(i)
	:: writtenBy(ent,i) && ent.rev >= c[i].rev && ent.kind == RECORD ->
		c[i].rev = ent.rev;                                                          /* [Candidate.adopt] */
		if :: ent.lease > 0 -> sd = ent.lease; ok = (ent.left == 0); confirm(i, sd, ok) :: else -> skip fi
	:: b && !writtenBy(ent,i) -> lose(i)
	:: else -> if
	:: LOWER && ent.kind != NOTHING && !writtenBy(ent,i) && ent.rev >= c[i].num -> lose(i)
	:: else -> if
	:: ent.kind == NOTHING || ent.kind == RECORD && ent.own != i -> c[i].unsure = 1; c[i].next = 0
	:: else -> skip
	fi fi fi
}
inline release(i, nmd) {                                                          /* [releasing.release, releasing.writeOp] */
	assert(!c[i].work);                                                          /* P3 */
	printf("%c releases the key\n", name(i));
	if
	:: up(i) && key.rev == c[i].rev -> store(i, RELEASE, stillDue(i), nmd, c[i].outdated, 0, c[i].excused); over_(i); squeeze()
	:: up(i) && key.rev != c[i].rev && mine(key, i) -> c[i].rev = key.rev; c[i].next = 1   /* a renewal was applied late */
	:: up(i) && key.rev != c[i].rev && !mine(key, i) -> over_(i)
	:: !up(i) ->
		c[i].next = 1;
		if :: c[i].link == MUTE && key.rev == c[i].rev -> store(i, RELEASE, stillDue(i), nmd, c[i].outdated, 0, c[i].excused); squeeze()
		:: c[i].link == HOLDING -> hold(i, RELEASE, stillDue(i), nmd, 0, c[i].rev)
		:: else fi
	fi
}

inline copyRec(to, from) { to.kind = from.kind; to.own = from.own; to.rev = from.rev; to.age = from.age; to.lease = from.lease; to.left = from.left; to.named = from.named; to.old = from.old; to.stays = from.stays }
inline blank(ent) { ent.kind = 0; ent.own = 0; ent.rev = 0; ent.age = 0; ent.lease = 0; ent.left = 0; ent.named = 0; ent.old = 0; ent.stays = 0 }
inline forgetLate() { isLate = 0; lateOdd = 0; over = 0; blank(late) }
inline forgetCopy() { isCopy = 0; copySeq = 0; blank(copy) }
inline gapped(i) { forgetSight(i) }                                               /* it may have missed something since it saw that [Candidate.forgetTiming] */
inline deceived(i) { if :: c[i].sight != key.rev -> forgetSight(i) :: else -> c[i].oddSight = sees(i) fi }
inline notified(i) { if :: c[i].link == FINE -> c[i].removed = 1 :: else fi }
inline remade(i) { forgetSight(i); c[i].outdated = 1; c[i].former = holder(i); c[i].seenOld = (c[i].seen >= RECORD) }
inline pardon(i) {
	if :: leads(i) -> c[i].excused = 0; top = c[i].num :: else -> c[i].removed = 0 fi;
	c[i].highest = key.rev                                                        /* all have read the key on account of a notification */
}
inline older(i) {
	lessOne(c[i].next); lessOne(c[i].counts); if :: c[i].lapse < 255 -> lessOne(c[i].lapse) :: else fi; if :: c[i].sent > 1 -> c[i].sent-- :: else fi;
	if :: key.own == i -> lessOne(key.lease) :: else fi;
	if :: isLate && late.own == i -> lessOne(late.lease) :: else fi;
	if :: isCopy && copy.own == i -> lessOne(copy.lease) :: else fi;
	if :: c[i].lease == 1 -> printf("the lease of %c ends\n", name(i)); over_(i) :: else -> lessOne(c[i].lease) fi   /* P1 */
}
inline tick(odd, rate) {                                                          /* candidate odd's clock advances by rate instead of 1 */
	if :: odd < N -> printf("a tick; %d by the clock of %c\n", rate, name(odd)) :: else -> printf("a tick\n") fi;
	if :: key.kind != NOTHING && !key.stays -> key.age++ :: else fi;
	if :: isCopy && copy.age < TTL + LATE -> copy.age++ :: isCopy && copy.age == TTL + LATE -> forgetCopy() :: else fi;
	x = 0; do :: x < N ->
		y = (x == odd -> rate : 1);
		do :: y > 0 -> y--; older(x) :: else -> break od;
		x++
	:: else -> break od
}

proctype Candidate(byte i) {
	do
	/* campaign [waiting.errands, Candidate.bid, bidding.decide] */
	:: /* Read */ d_step { idle(i) && c[i].link == FINE && (c[i].next == 0 || vacant && !(key.kind == RELEASE && key.own == i) || mine(key, i)) ->
		printf("%c reads the key\n", name(i)); read(i, key); done }
	:: /* ReadCopy */ d_step { idle(i) && c[i].link == FINE && c[i].next == 0 && isCopy ->
		printf("%c reads an earlier version of the key\n", name(i)); read(i, copy); done }
	:: /* Notice */ d_step { idle(i) && c[i].link == FINE && key.kind == RECORD && key.own != i && c[i].sight != key.rev ->
		printf("%c is notified of a renewal\n", name(i)); see(i, key.rev, key.own); done }                      /* [Candidate.changed] */
	:: /* TakeOver */ d_step { idle(i) && c[i].link == FINE && lapsed(i, key) -> takeOver(i, key); done }
	:: /* TakeOverCopy */ d_step { idle(i) && c[i].link == FINE && isCopy && copy.rev != key.rev && lapsed(i, copy) -> takeOver(i, copy); done }
	:: /* LoadInfo */ d_step { idle(i) && c[i].outdated && c[i].link == FINE ->
		printf("%c finds that the bucket was made again\n", name(i)); c[i].outdated = 0; c[i].highest = 0; forgetSight(i); done }   /* [Candidate.loadOp] */
	:: /* Announce */ d_step { idle(i) && c[i].link == FINE && c[i].next == 0 && (key.kind == RECORD && key.own != i || key.kind == RELEASE && !key.stays) ->
		printf("%c reads the key, and announces itself by an attempt to create it\n", name(i)); read(i, key); c[i].seen = BLIND; done }   /* [bidding.announce] */
	:: /* FailToRead */ d_step { idle(i) && c[i].next == 0 && (c[i].link == FINE && faults > 0 || cutOff(i)) ->
		if :: c[i].link == FINE -> faults-- :: else fi;
		if :: c[i].link == CUT -> c[i].next = INTERVAL
#ifndef CREATE_BLINDLY
		:: c[i].unanswered && cutOff(i) && c[i].link != CUT -> c[i].next = INTERVAL;                 /* [bidding.repliesArrive] */
			printf("%c cannot read the key, and receives no reply to an attempt that is always refused\n", name(i))
#endif
		:: else -> printf("%c cannot read the key, and creates it\n", name(i)); c[i].seen = BLIND fi; done }
	:: /* Write */ d_step { writes(i) && reaches(i) ->
		printf("%c writes over what it read\n", name(i));
		win(i); if :: ok -> c[i].rev = key.rev; newTerm(i, LEASE); squeeze() :: else -> lost(i) fi; done }
	:: /* WriteAndFreeze */ d_step { writes(i) && c[i].link == FINE && faults > 0 -> faults--;
		win(i);
		if :: ok -> printf("%c wins, and is stopped before it receives the reply\n", name(i));
			c[i].link = FROZEN; c[i].rev = key.rev; c[i].sent = LEASE + 1; squeeze()
		:: else -> lost(i) fi; done }
	:: /* WriteUnanswered */ d_step { writes(i) && cutOff(i) ->
		printf("%c writes, and receives no reply\n", name(i)); c[i].givenUp = 1; ok = 0;
		if :: c[i].link == MUTE -> win(i)
		:: c[i].link == HOLDING -> standDown(i); exp = (c[i].seen == NOTHING || c[i].seen == BLIND -> 0 : c[i].seenRev); hold(i, RECORD, sd, 0, 0, exp)
		:: else fi;
		lost(i); c[i].unanswered = 1; squeeze(); done }
	:: /* WriteRefused */ d_step { writes(i) && c[i].link == FINE && faults > 0 -> faults--;
		printf("%c writes, and is refused because another write is in flight\n", name(i)); lost(i); done }
	:: /* Yield */ d_step { writes(i) && c[i].link == FINE && faults > 0 -> faults--;
		printf("%c leaves the key to others for now\n", name(i)); unread(i); c[i].next = INTERVAL; done }
	:: /* ReceiveWin */ d_step { c[i].sent && reaches(i) && c[i].st == CANDIDATE ->
		printf("%c receives the reply to its win\n", name(i)); exp = c[i].sent - 1; newTerm(i, exp); done }

	/* lead [holding.done, Candidate.renew, renewing.writeOp]; DRAIN renews while work returns [releasing.waited] */
	:: /* Renew */ d_step { renews(i) && up(i) && key.rev == c[i].rev ->
		printf("%c renews\n", name(i));
		b = (c[i].counts == 0); store(i, RECORD, stillDue(i), 0, c[i].outdated, LEASE, c[i].excused);
		c[i].rev = key.rev; ok = b; confirm(i, LEASE, ok); squeeze(); done }
	:: /* RenewAndFreeze */ d_step { renews(i) && c[i].link == FINE && key.rev == c[i].rev && faults > 0 -> faults--;
		printf("%c renews, and is stopped before it receives the reply\n", name(i));
		c[i].ready = (c[i].counts == 0); store(i, RECORD, stillDue(i), 0, c[i].outdated, LEASE, c[i].excused);
		c[i].rev = key.rev; c[i].sent = LEASE + 1; c[i].link = FROZEN; squeeze(); done }
	:: /* ReceiveRenewal */ d_step { holder(i) && c[i].sent && up(i) ->
		printf("%c receives the reply to its renewal\n", name(i)); exp = c[i].sent - 1; ok = c[i].ready; confirm(i, exp, ok); done }
	:: /* RefusedAndRead */ d_step { renews(i) && up(i) && key.rev != c[i].rev ->
		printf("%c is refused, and reads the key\n", name(i)); resolve(i, 0, 1, key); done }
	:: /* RefusedNamedAndRead */ d_step { renews(i) && up(i) && key.rev != c[i].rev ->
		printf("%c is refused with the last sequence, and reads the key\n", name(i)); resolve(i, 1, 1, key); done }
	:: /* RefusedNamedAndReadCopy */ d_step { renews(i) && up(i) && key.rev != c[i].rev && isCopy ->
		printf("%c is refused with the last sequence, and reads an earlier version\n", name(i)); resolve(i, 1, 1, copy); done }
	:: /* RefusedAndReadCopy */ d_step { renews(i) && up(i) && key.rev != c[i].rev && isCopy ->
		printf("%c is refused, and reads an earlier version\n", name(i)); resolve(i, 0, 1, copy); done }
	:: /* RefusedNamedUnread */ d_step { renews(i) && up(i) && key.rev != c[i].rev && faults > 0 -> faults--;
		printf("%c is refused with the last sequence, and cannot read\n", name(i)); resolve(i, 1, 0, key); done }
	:: /* RefusedUnread */ d_step { renews(i) && up(i) && faults > 0 -> faults--;
		printf("%c is refused, and cannot read\n", name(i)); resolve(i, 0, 0, key); done }
	:: /* RefusedInFlight */ d_step { renews(i) && up(i) && key.rev == c[i].rev && faults > 0 -> faults--;
		printf("%c is refused because another write is in flight, and reads the key\n", name(i)); resolve(i, 0, 1, key); done }
	:: /* Verify */ d_step { holder(i) && !c[i].sent && up(i) && tells(key, i) -> verify(i, key); done }
	:: /* VerifyCopy */ d_step { holder(i) && !c[i].sent && up(i) && isCopy && tells(copy, i) -> verify(i, copy); done }
	:: /* RenewUnanswered */ d_step { renews(i) && cutOff(i) ->
		printf("%c renews, and receives no reply\n", name(i)); c[i].pending = 1; retry(i);
#ifdef ABDICATE
		lose(i);
#endif
		if :: c[i].link == MUTE && key.rev == c[i].rev -> store(i, RECORD, stillDue(i), 0, c[i].outdated, LEASE, c[i].excused)
		:: c[i].link == HOLDING -> hold(i, RECORD, stillDue(i), 0, LEASE, c[i].rev)
		:: else fi;
		squeeze(); done }

	/* the end of leadership [End, Stop], and the release */
	:: /* Resign */ d_step { (c[i].st == LEADER || c[i].st == ELECT) && faults > 0 && c[i].link != FROZEN -> faults--;
		printf("%c resigns\n", name(i)); c[i].st = DRAIN; if :: !c[i].work -> c[i].next = 0 :: else fi; done }
	:: /* CallBack */ d_step { c[i].st == ELECT && !c[i].work && faults > 0 -> faults--;
		printf("a callback of %c takes its time\n", name(i)); c[i].work = 1; done }
	:: /* WorkReturns */ d_step { c[i].work && c[i].st != LEADER && c[i].link != FROZEN ->
		printf("the work of %c returns\n", name(i)); c[i].work = 0; if :: c[i].st == DRAIN -> c[i].next = 0 :: else fi;
		if :: c[i].link == HANGING -> c[i].link = FINE :: else fi; done }
	:: /* Release */ d_step { releases(i) -> release(i, 0); done }
	:: /* ReleaseNaming */ d_step { releases(i) && c[i].led -> release(i, 1); done }                       /* it names those that it saw [Candidate.successors] */
	:: /* ReleaseRefused */ d_step { releases(i) && up(i) && faults > 0 -> faults--;
		printf("%c may not release the key yet, and cannot tell why\n", name(i)); c[i].next = 1; done }
	:: /* GiveUpRelease */ d_step { c[i].st == DRAIN && !c[i].work && !c[i].sent && c[i].link != FROZEN ->
		printf("%c leaves the key to expire\n", name(i)); over_(i); done }
	:: /* AbandonWork */ d_step { c[i].st == DRAIN && c[i].link == HANGING -> printf("%c does not wait for its work any more\n", name(i)); over_(i); done }

	/* trouble */
	:: /* Crash */ d_step { faults > 0 && holder(i) -> faults--; printf("%c crashes, and starts again\n", name(i));
		over_(i); forgetSight(i); c[i].work = 0; c[i].link = FINE; c[i].givenUp = 0; c[i].unanswered = 0; c[i].removed = 0; c[i].outdated = 0; c[i].highest = 0;
		if :: key.own == i -> key.own = STRANGER :: else fi; if :: isCopy && copy.own == i -> copy.own = STRANGER :: else fi;
		if :: isLate && late.own == i -> late.own = STRANGER :: else fi; done }
	:: /* CutOff */ d_step { faults > 0 && c[i].link == FINE && holder(i) -> faults--; c[i].link = CUT; printf("%c is cut off\n", name(i)); done }
	:: /* Mute */ d_step { faults > 0 && c[i].link == FINE -> faults--; c[i].link = MUTE; printf("no reply reaches %c\n", name(i)); done }
#ifndef NO_LATE_WRITES
	:: /* HoldUp */ d_step { faults > 0 && c[i].link == FINE -> faults--; c[i].link = HOLDING; printf("what %c writes is held up\n", name(i)); done }
#endif
	:: /* LoseInfo */ d_step { faults > 0 && c[i].link == FINE -> faults--; c[i].link = NOINFO; printf("the bucket's info does not reach %c\n", name(i)); done }
	:: /* Freeze */ d_step { faults > 0 && c[i].link == FINE -> faults--; c[i].link = FROZEN; printf("%c is stopped\n", name(i)); done }
	:: /* Hang */ d_step { faults > 0 && c[i].link == FINE && c[i].work && !c[i].sent -> faults--; c[i].link = HANGING; printf("the work of %c will hang\n", name(i)); done }
	:: /* Recover */ d_step { c[i].link != FINE && c[i].link != HANGING ->
		if :: cutOff(i) -> gapped(i) :: else fi; c[i].link = FINE; printf("%c is fine again\n", name(i)); done }
	/* whatever it says of whatever revision, written or yet to be written: no read shows its stamp [Candidate.changed] */
	:: /* Forge */ d_step { faults >= FORGERY && idle(i) && c[i].link == FINE && c[i].next > 0 -> faults = faults - FORGERY; printf("a forged notification reaches %c, who reads the key\n", name(i));
		forgetSight(i); c[i].next = 0; done }
	:: /* ForgeRenewal */ d_step { faults >= FORGERY && idle(i) && c[i].link == FINE && sees(i) -> faults = faults - FORGERY; printf("a forged notification of a renewal reaches %c\n", name(i));
#ifdef FREEZE_SIGHT
		c[i].sight = seq + ANNOUNCED; c[i].lapse = LAPSE
#else
		forgetSight(i)
#endif
		; done }
	od
}

#define lives(k)   (key.kind == NOTHING || key.stays -> 255 : (key.kind == MARKER -> 1 : TTL + LATE))
#define anyOld     (key.old || isLate && late.old || anyOf(isOld))
#define isOld(i)   (c[i].outdated || c[i].former || c[i].seenOld)
#define knowsNext(i) (c[i].rev == seq + 1 || c[i].num == seq + 1 || c[i].highest == seq + 1 || c[i].seenRev == seq + 1)
#define each(f)    x = 0; do :: x < N -> f(x); x++ :: else -> break od
#define disturbed(i) c[i].stale = c[i].stale | (c[i].st != CANDIDATE); c[i].excused = c[i].excused | (c[i].st != CANDIDATE); c[i].odd = c[i].odd | (c[i].seen != 0)

/* Server: what the bucket does by itself, and what operators and disasters do to it. */
proctype Server() {
	do
	:: /* Expire */ d_step { key.kind == MARKER || key.kind > MARKER && key.age >= TTL -> printf("the key expires\n"); clearKey(NOTHING); squeeze(); done }
	:: /* ExpireMarked */ d_step { key.kind > MARKER && key.age >= TTL -> printf("the key expires, and leaves a marker\n"); clearKey(MARKER); squeeze(); done }
	:: /* ExpireEarly */ d_step { key.kind > MARKER && key.age >= TTL - EARLY && key.age < TTL && faults > 0 -> faults--;
		printf("the key expires early\n"); clearKey(MARKER); squeeze(); done }
	:: /* LateArrives */ d_step { isLate -> printf("the write of %c that was held up arrives\n", name(late.own));
		if :: key.rev == over && (over > 0 || key.kind == NOTHING) -> store(late.own, late.kind, late.left, late.named, late.old, late.lease, lateOdd) :: else fi;
		forgetLate(); squeeze(); done }
	:: /* LateLost */ d_step { isLate -> forgetLate(); squeeze(); done }
	:: /* Delete */ d_step { key.kind >= RECORD && faults > 0 -> faults--; printf("an operator deletes the key\n"); clearKey(TOMBSTONE); each(notified); squeeze(); done }
	:: /* DeleteUnheard */ d_step { key.kind >= RECORD && faults > 0 -> faults--; printf("an operator deletes the key, and no notification tells of it\n"); clearKey(TOMBSTONE); squeeze(); done }
	:: /* OverwriteBare */ d_step { faults > 0 && key.own != BARE -> faults--; printf("a stranger writes the key, and states no lease\n"); store(BARE, RECORD, 0, 0, 0, 0, 0); squeeze(); done }
#ifndef NO_LASTING
	:: /* OverwriteLong */ d_step { faults > 0 && key.own != LONG -> faults--; printf("a stranger writes the key, and states a lease of an hour\n"); store(LONG, RECORD, 0, 0, 0, 0, 0); squeeze(); done }
	:: /* Overwrite */ d_step { faults > 0 -> faults--; printf("a stranger writes the key\n"); store(STRANGER, RECORD, 0, 0, 0, 0, 0); squeeze(); done }
	:: /* KeepForEver */ d_step { key.kind == RECORD && key.own >= N && key.age == 0 && !key.stays -> printf("and says that the record never expires\n"); key.stays = 1; done }
	:: /* Remember */ d_step { key.kind == RELEASE && key.own < N && key.left == 0 && key.age == 0 && !key.stays -> printf("and the release never expires\n"); key.stays = 1; done } /* [releasing.writeOp] */
#endif
#ifndef NO_DISASTERS
	:: /* MakeCopy */ d_step { !isCopy && key.kind != NOTHING && faults > 0 -> faults--; printf("a copy is made of the bucket\n"); isCopy = 1; copySeq = seq; copyRec(copy, key); done }
	:: /* ForgetCopy */ d_step { isCopy -> forgetCopy(); squeeze(); done }
	:: /* Rewind */ d_step { isCopy && copySeq != seq -> printf("the server goes back to the copy of the bucket\n");
		copyRec(key, copy); seq = copySeq; forgetCopy(); top = 0; lateOdd = isLate; each(disturbed); each(gapped); squeeze(); done }
	:: /* RewindUnnoticed */ d_step { isCopy && copySeq != seq && anyOf(sees) -> printf("the server goes back to the copy of the bucket, and no connection is lost\n");
		copyRec(key, copy); seq = copySeq; forgetCopy(); top = 0; lateOdd = isLate; each(disturbed); each(deceived); squeeze(); done }
	:: /* Remake */ d_step { faults > 0 && !anyOld && seq > 0 -> faults--; printf("the bucket is made again\n");
		clearKey(NOTHING); seq = 0; forgetCopy(); top = 0; lateOdd = isLate; late.old = isLate; each(disturbed); each(remade); squeeze(); done }
	:: /* Leap */ d_step { !gap && (over == seq + 1 || anyOf(knowsNext)) -> everyRevision(shift); gap = 1; done }
#endif
	od
}

/* Clock: one tick, when nothing is due any more for those who are not in trouble. Timers of a clock that errs stand still, or run twice. */
#define urgent(i)  (c[i].link != FROZEN && (c[i].seen || c[i].sent || (holder(i) || !c[i].work) && c[i].next == 0 || c[i].work && c[i].st != LEADER && c[i].link != HANGING))
#define calm(i)    (leads(i) && mine(key, i) && key.rev == c[i].rev && !c[i].former && c[i].lease == LEASE && key.age == 0)
#define quiet(i)   (c[i].link == FINE && !c[i].seen && (calm(i) || c[i].st == CANDIDATE && !c[i].work))
#define peace      (anyOf(calm) && allOf(quiet) && !isLate && !isCopy)
#define takesOver(i) (key.stays && idle(i) && c[i].link == FINE && lapsed(i, key))   /* otherwise the key expires */
#define canTick    (!anyOf(urgent) && !anyOf(takesOver) && key.age < lives(key))
proctype Clock() {
	do
	:: /* NewRound */ d_step { canTick && peace && (faults < FAULTS || slips < SLIPS) ->         /* a new round of trouble may begin */
		faults = FAULTS; slips = SLIPS; each(pardon); squeeze(); done }
	:: /* Tick */ d_step { canTick -> tick(N, 0); done }
	:: /* TickSlow0 */ d_step { canTick && slips > 0 -> slips--; tick(0, 0); done }
	:: /* TickFast0 */ d_step { canTick && slips > 0 -> slips--; tick(0, 2); done }
	:: /* TickSlow1 */ d_step { canTick && slips > 0 -> slips--; tick(1, 0); done }
#if N == 3
	:: /* TickSlow2 */ d_step { canTick && slips > 0 -> slips--; tick(2, 0); done }
	:: /* TickFast2 */ d_step { canTick && slips > 0 -> slips--; tick(2, 2); done }
#endif
	:: /* TickFast1 */ d_step { canTick && slips > 0 -> slips--; tick(1, 2); done }
	od
}

init {
	atomic { key.kind = NOTHING; key.own = STRANGER; byte n = 0; do :: n < N -> run Candidate(n); n++ :: else -> break od; run Server(); run Clock() }
}

#ifdef LIVENESS
ltl again { [] <> (anyOf(leads)) }                                                /* P8: somebody leads again and again */
#endif
