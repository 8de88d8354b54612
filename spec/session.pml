/*
 * Sessions as a model that SPIN checks exhaustively: one renewal for all keys of a process. See docs/MODEL.md, and run spec/check.sh.
 *
 * A process opens a session, a record with a random id that is used once, and renews it. What it leads are claims: records that name a session and
 * never expire. Nothing disappears from the bucket but by a write over a revision, so a claim is dead for good once its session is closed: then nobody
 * can renew it any more. These are the epoch leases of CockroachDB, with an id in place of an epoch.
 *
 * Time advances in ticks whenever it likes, so everybody may be as slow as he wants to be. Timers count down, so runs are endless and the states
 * finitely many. A write over a revision is one transition, and so is what a consumer delivers of a renewal: it may be late, leaves out what was replaced
 * meanwhile, and may be of a bucket that was made again since. The model leaves out what is in the records besides, a history that goes back, and a write
 * that hits the same revision of a bucket that was made again.
 */
#ifndef S
#define S 2       /* sessions at a time; a session that is over and that no claim names makes room for another */
#endif
#ifndef K
#define K 1       /* keys */
#endif
#ifndef FAULTS
#define FAULTS 2  /* of all kinds */
#endif
#ifndef LATES
#define LATES 0   /* renewals of which their process is told late, or never, besides faults */
#endif
#ifndef SLIPS
#define SLIPS 1   /* ticks by which clocks err */
#endif
#ifndef LEASE
#define LEASE 2   /* from the send of a renewal */
#endif
#ifndef LAPSE
#define LAPSE (LEASE + SLIPS)   /* after which a renewal is over that was seen, by the clock of who saw it */
#endif

#define ABSENT   0        /* what is stored of a session: nothing */
#define OPEN     1
#define CLOSED   2        /* somebody wrote over its last renewal that it is over */
#define RELEASED 3        /* its process did, or a witness of its death, by the secret: all work has ended */

#define NOBODY   S        /* whose a claim is, besides a session: the key was never claimed in this bucket */
#define LOST     (S + 1)  /* it was evicted, overwritten by a stranger, or names a session that is gone */

byte stored[S], owner[K], left[K];  /* left: for how long the owner had to wait when it wrote the claim */
bit  free[K];                       /* the claim is released */

typedef Row { bit at[K] }
typedef Waits { byte at[K] }
typedef Times { byte at[S] }
typedef Sights { bit at[S] }
bit    live[S], down[S];  /* its process has opened it and not given it up; it is cut off */
byte   lease[S], age[S];  /* until the deadline, by the last renewal that is verified; since it was opened, as far as that matters */
byte   sent[S];           /* until the deadline that its last renewal gives, of which it was not told yet; 0 if it was, or if that is over */
bit    earlier[S];        /* that renewal is of an earlier bucket */
Row    holds[S];          /* it knows that the claim is its own */
Row    held[S];           /* and did when that renewal was sent */
Row    before[S];         /* the last change of the claim was stored before that renewal */
Row    proven[S];         /* and that this was so at a later renewal, or by what it took the claim over */
Row    stops[S], work[S]; /* it ends its term; work runs */
Waits  wait[S];           /* until the lease of the predecessor is over */
Sights seen[S];           /* it has seen the last renewal of another session */
Times  lapse[S];          /* until that renewal is over */

#ifdef BELIEVE_EARLIER
bit  knew[S];      /* before it opens its process is told that the bucket is settled, and remembers that though the bucket is made again */
#define isSettled(s) (settled || knew[s])
#else
#define isSettled(s) settled
#endif
bit  settled;      /* the bucket is older than any lease of an earlier bucket */
bit  isLate; byte lateKey, lateBy, lateWait;   /* a claim that is on its way; once another write has changed the claim, it is refused */
byte faults = FAULTS, lates = LATES, slips = SLIPS;
byte x, w;                /* scratch, 0 between two transitions */

#define done x = 0; w = 0
#ifdef NO_DEADLINE
#define valid(s)    live[s]
#else
#define valid(s)    (lease[s] > 0)
#endif
#define leads(s,k)  (holds[s].at[k] && proven[s].at[k] && !stops[s].at[k] && wait[s].at[k] == 0 && valid(s))
#define works(s,k)  (work[s].at[k] && lease[s] > 0)
#define most(a,b)   (a > b -> a : b)
#define lessOne(v)  v = (v > 0 -> v - 1 : 0)
#define name(s)     ('A' + s)
#define upTo(n, f)  x = 0; do :: x < n -> f; x++ :: else -> break od

#if K == 2
#define noneNames(s)   (owner[0] != s && owner[1] != s)
#define anyWork(s)     (work[s].at[0] || work[s].at[1])
#define anyUnproven(s) (holds[s].at[0] && !proven[s].at[0] || holds[s].at[1] && !proven[s].at[1])
#else
#define noneNames(s)   (owner[0] != s)
#define anyWork(s)     (work[s].at[0])
#define anyUnproven(s) (holds[s].at[0] && !proven[s].at[0])
#endif

#ifdef RELEASE_EARLY
#define returned(s,k) 1
#else
#define returned(s,k) (!work[s].at[k])
#endif

/* demanded says that the record of a session is stored in the bucket in which it writes that the bucket is settled. */
#ifdef SETTLE_BLINDLY
#define demanded(s) 1
#else
#define demanded(s) (stored[s] == OPEN)
#endif

inline drop(s, k) { holds[s].at[k] = 0; held[s].at[k] = 0; proven[s].at[k] = 0; stops[s].at[k] = 0; work[s].at[k] = 0; wait[s].at[k] = 0 }
/* noneSent says that there is no renewal of which a session has not been told. */
inline noneSent(s) { sent[s] = 0; earlier[s] = 0; w = 0; do :: w < K -> held[s].at[w] = 0; before[s].at[w] = 0; w++ :: else -> break od }
/* forget ends what the process of a session knows. A claim of it that is still on its way names a session that is over. */
inline forget(s) {
	live[s] = 0; lease[s] = 0; age[s] = 0; down[s] = 0; noneSent(s);
#ifndef KEEP_CLAIMS
	upTo(K, drop(s, x));
#else
	upTo(K, work[s].at[x] = 0);
#endif
#ifdef BELIEVE_EARLIER
	knew[s] = 0;
#endif
	upTo(S, seen[s].at[x] = 0; lapse[s].at[x] = 0);
	if :: isLate && lateBy == s -> lateBy = LOST :: else fi
}
inline write(k, own, fr, lf) {
	owner[k] = own; free[k] = fr; left[k] = lf; before[0].at[k] = 0; before[1].at[k] = 0;
#if S == 3
	before[2].at[k] = 0;
#endif
	if :: isLate && lateKey == k -> isLate = 0; lateKey = 0; lateBy = 0; lateWait = 0 :: else fi
}
#ifdef CLOSE_BLINDLY
inline unseen(s)  { skip }
#else
inline unseen(s)  { w = 0; do :: w < S -> seen[w].at[s] = 0; lapse[w].at[s] = 0; w++ :: else -> break od }   /* what anybody has timed is not its last renewal any more */
#endif

/* needs says for how long the session must wait that takes a claim. */
inline needs(s, k) {
	if
	:: free[k] -> w = left[k]
	:: !free[k] && owner[k] == NOBODY -> w = (isSettled(s) -> 0 : LAPSE - age[s])   /* leaders of an earlier bucket had a lease when this session was opened, at most */
#ifdef TRUST_EMPTY
		w = 0;
#endif
	:: !free[k] && owner[k] == LOST -> w = LAPSE
#ifdef TRUST_EVICTION
		w = 0;
#endif
	:: !free[k] && owner[k] < S && stored[owner[k]] == RELEASED -> w = left[k]
	:: else -> w = (seen[s].at[owner[k]] -> lapse[s].at[owner[k]] : LAPSE);
#ifdef BELIEVE_CLOSER
		w = 0;
#endif
		w = most(w, left[k])
	fi
#ifdef FORGET_WAIT
	; w = (left[k] > 0 && w == left[k] -> 0 : w)
#endif
}
#define vacant(s,k) (!holds[s].at[k] && (free[k] || owner[k] >= S || owner[k] != s && stored[owner[k]] != OPEN))

#define renews(s) (live[s] && !down[s] && stored[s] == OPEN && lease[s] > 0 && sent[s] < LEASE && (lease[s] < LEASE || anyUnproven(s)))

/* isTold says that a session which is told of its renewal is told of what is stored of a claim, too. */
#ifdef LEFT_OUT
#define isTold(s,k) (sent[s] == 0 || before[s].at[k])   /* what is delivered before the renewal, and no more */
#else
#define isTold(s,k) (!earlier[s])                       /* all that is stored when it is delivered */
#endif
inline prove(s, k) {
	if
	:: holds[s].at[k] && (owner[k] != s || free[k]) && isTold(s, k) -> printf("%c finds that claim %d is not its own any more\n", name(s), k); drop(s, k)
	:: holds[s].at[k] && held[s].at[k] && !(isTold(s, k) && (owner[k] != s || free[k])) -> proven[s].at[k] = 1
	:: else
	fi
}
inline leadAlone(s, k) { x = 0; do :: x < S -> assert(x == s || !leads(x, k) && !works(x, k)); x++ :: else -> break od }

proctype Session(byte s) {
	do
	:: /* Open */ d_step { !live[s] && stored[s] == ABSENT && noneNames(s) -> printf("%c is opened\n", name(s));
		stored[s] = OPEN; live[s] = 1; lease[s] = LEASE; unseen(s); done }
#ifdef BELIEVE_EARLIER
	:: /* Follow */ d_step { !live[s] && settled && !knew[s] -> knew[s] = 1; printf("%c is told that the bucket is settled\n", name(s)) }
#endif
	:: /* Renew */ d_step { renews(s) -> printf("%c is renewed\n", name(s));
#ifdef UNVERIFIED
		upTo(K, proven[s].at[x] = holds[s].at[x]);
#else
		upTo(K, held[s].at[x] = holds[s].at[x]; prove(s, x));      /* it has received every change up to its own renewal, or reads its claims */
#endif
		lease[s] = LEASE; noneSent(s); unseen(s); done }
	:: /* RenewLate */ d_step { renews(s) && (lates > 0 || faults > 0) -> if :: lates > 0 -> lates-- :: else -> faults-- fi;
		printf("%c is renewed, and not told of it yet\n", name(s));
		sent[s] = LEASE; upTo(K, held[s].at[x] = holds[s].at[x]; before[s].at[x] = 1); unseen(s); done }
	:: /* Told */ d_step { live[s] && !down[s] && lease[s] > 0 && sent[s] > 0 -> printf("%c is told of its renewal\n", name(s));
		upTo(K, prove(s, x)); lease[s] = sent[s]; noneSent(s); done }     /* what is stored after it was delivered changes nothing: who takes a claim waits */
	:: /* Refused */ d_step { live[s] && !down[s] && stored[s] != OPEN -> printf("%c learns that it is over\n", name(s)); forget(s); done }
#ifdef SETTLES
	:: /* Settle */ d_step { live[s] && !settled && age[s] == LAPSE && demanded(s) -> printf("%c writes that the bucket is settled\n", name(s)); settled = 1; done }
#endif
	:: /* Expire */ d_step { live[s] && lease[s] == 0 -> printf("the lease of %c ends\n", name(s)); forget(s); done }
	:: /* End */ d_step { live[s] && !down[s] && stored[s] == OPEN && !anyWork(s) ->   /* it restates for how long takers of its claims must wait for leaders before it */
		upTo(K, if :: owner[x] == s && !free[x] -> w = most(w, (holds[s].at[x] && proven[s].at[x] -> wait[s].at[x] : LAPSE)) :: else fi);
#ifdef RESTATE_NOTHING
		w = 0;
#endif
		printf("%c is released, and states a wait of %d\n", name(s), w);
		upTo(K, if :: owner[x] == s && !free[x] -> left[x] = w :: else fi);
		stored[s] = RELEASED; forget(s); done }
	:: /* Crash */ d_step { live[s] && faults > 0 -> faults--; printf("the process of %c dies\n", name(s)); forget(s); upTo(K, drop(s, x)); done }
	:: /* CrashWitnessed */ d_step { live[s] && faults > 0 && stored[s] == OPEN -> faults--; printf("the process of %c dies, and its witness releases it\n", name(s));
		forget(s); upTo(K, drop(s, x)); stored[s] = RELEASED; done }
	:: /* CutOff */ d_step { live[s] && !down[s] && faults > 0 -> faults--; down[s] = 1; printf("%c is cut off\n", name(s)); done }
	:: /* Heal */ d_step { down[s] -> down[s] = 0; printf("%c is connected again\n", name(s)); done }
	:: /* Vanish */ d_step { !live[s] && stored[s] != ABSENT -> printf("the record of %c expires\n", name(s));   /* long after its lease: its TTL is the server's to keep */
		stored[s] = ABSENT; unseen(s); upTo(K, if :: owner[x] == s -> owner[x] = LOST :: else fi); done }
	:: /* RogueClose */ d_step { stored[s] == OPEN && faults > 0 -> faults--; printf("a stranger closes %c\n", name(s)); stored[s] = CLOSED; done }
	od
}

/* Sight: what session s knows of another. */
proctype Sight(byte s; byte o) {
	do
	:: /* See */ d_step { live[s] && !down[s] && !seen[s].at[o] && (stored[o] == OPEN || stored[o] == CLOSED) -> seen[s].at[o] = 1; lapse[s].at[o] = LAPSE; done }
	:: /* Close */ d_step { live[s] && !down[s] && seen[s].at[o] && lapse[s].at[o] == 0 && stored[o] == OPEN ->
		printf("%c closes %c\n", name(s), name(o)); stored[o] = CLOSED; done }   /* over the very renewal that it has timed */
	od
}

/* Claim: what session s does with a key. */
proctype Claim(byte s; byte k) {
	do
	:: /* Take */ d_step { live[s] && !down[s] && lease[s] > 0 && vacant(s, k) -> needs(s, k);
		printf("%c takes claim %d, and waits %d\n", name(s), k, w);
		proven[s].at[k] = (free[k] || owner[k] != NOBODY);              /* nothing else shows that its session is in this bucket */
#ifdef PROVEN_AT_ONCE
		proven[s].at[k] = 1;
#endif
		write(k, s, 0, w); holds[s].at[k] = 1; wait[s].at[k] = w; done }
	:: /* TakeUnanswered */ d_step { live[s] && !down[s] && vacant(s, k) && faults > 0 -> faults--; needs(s, k);
		printf("%c takes claim %d, and does not learn of it\n", name(s), k); write(k, s, 0, w); done }
	:: /* TakeLate */ d_step { live[s] && !down[s] && vacant(s, k) && !isLate && faults > 0 -> faults--; needs(s, k);
		printf("the write of %c over claim %d is held up\n", name(s), k);
		isLate = 1; lateKey = k; lateBy = s; lateWait = w; done }
	:: /* Adopt */ d_step { live[s] && !down[s] && owner[k] == s && !free[k] && !holds[s].at[k] ->
		printf("%c finds that claim %d is its own\n", name(s), k); holds[s].at[k] = 1; wait[s].at[k] = left[k]; done }
	:: /* Lead */ d_step { leads(s, k) && !work[s].at[k] -> printf("%c leads key %d\n", name(s), k); leadAlone(s, k); work[s].at[k] = 1; done }
	:: /* Stop */ d_step { holds[s].at[k] && !stops[s].at[k] -> stops[s].at[k] = 1; printf("%c is to hand over key %d\n", name(s), k); done }
	:: /* Return */ d_step { stops[s].at[k] && work[s].at[k] -> work[s].at[k] = 0; done }
	:: /* Release */ d_step { live[s] && !down[s] && stops[s].at[k] && returned(s, k) ->
		if
		:: owner[k] == s && !free[k] -> printf("%c releases claim %d\n", name(s), k);
			w = (proven[s].at[k] -> wait[s].at[k] : LAPSE);
#ifdef FORGET_WAIT
			w = 0;
#endif
			write(k, s, 1, w)
		:: else
		fi;
#ifndef RELEASE_EARLY
		drop(s, k);
#else
		holds[s].at[k] = 0; proven[s].at[k] = 0; stops[s].at[k] = 0; wait[s].at[k] = 0;
#endif
		done }
	od
}

inline advance(s) {
	lessOne(lease[s]); if :: sent[s] == 1 -> noneSent(s) :: else -> lessOne(sent[s]) fi; age[s] = (live[s] && age[s] < LAPSE -> age[s] + 1 : age[s]);
	w = 0; do :: w < K -> lessOne(wait[s].at[w]); w++ :: else -> break od;
	w = 0; do :: w < S -> lessOne(lapse[s].at[w]); w++ :: else -> break od
}
#define tick(odd, rate) x = 0; do :: x < S -> if :: x != odd || rate > 0 -> advance(x) :: else fi; if :: x == odd && rate == 2 -> advance(x) :: else fi; x++ :: else -> break od

/* World: time, operators and disasters. */
proctype World() {
	do
	:: /* Tick */ d_step { printf("a tick\n"); tick(S, 1); done }
	:: /* Slow */ d_step { slips > 0 -> slips--; printf("a tick, which the clock of A does not count\n"); tick(0, 0); done }
	:: /* Fast */ d_step { slips > 0 -> slips--; printf("a tick, which the clock of A counts twice\n"); tick(0, 2); done }
	:: /* Evict */ d_step { faults > 0 && owner[0] != NOBODY -> faults--; printf("an operator evicts claim 0\n"); write(0, LOST, 0, 0); done }
	:: /* LateArrives */ d_step { isLate -> printf("the write over claim %d arrives\n", lateKey);
		w = lateWait; write(lateKey, lateBy, 0, w); done }
	:: /* Remake */ d_step { faults > 0 -> faults--; printf("the bucket is made again\n");
		settled = 0; upTo(S, stored[x] = ABSENT; unseen(x); earlier[x] = (sent[x] > 0)); upTo(K, write(x, NOBODY, 0, 0)); done }
	od
}

init {
	atomic {
		upTo(K, owner[x] = NOBODY); x = 0;
		run Session(0); run Session(1); run Sight(0, 1); run Sight(1, 0); run Claim(0, 0); run Claim(1, 0);
#if S == 3
		run Session(2); run Sight(0, 2); run Sight(2, 0); run Sight(1, 2); run Sight(2, 1); run Claim(2, 0);
#endif
#if K == 2
		run Claim(0, 1); run Claim(1, 1);
#if S == 3
		run Claim(2, 1);
#endif
#endif
		run World()
	}
}
