#!/usr/bin/env bash
# Has SPIN visit every state of the models of elections and of sessions, in several configurations, and expects of each mutant of a model a
# counterexample, which it writes to spec/traces. Needs spin and gcc. See docs/MODEL.md.
#
#   spec/check.sh          what CI runs
#   spec/check.sh full     larger searches too, of 6 to 10 GB, and of three-pairs the states that 12 GB hold (MEMLIM)
set -euo pipefail
cd "$(dirname "$0")"
command -v spin >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends spin; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
format='%-34s %12s %8s %8s %8s  %s\n'

model=election.pml

# search NAME "options of the model" "options of gcc" "options of pan": one search, in a directory of its own
search() {
	dir=$work/$1
	mkdir -p "$dir" && cp $model "$dir"
	(cd "$dir" && spin -a $2 $model >spin.txt 2>&1 && gcc -w -DVECTORSZ=1024 -DMEMLIM=12000 $3 -o pan pan.c) || { cat "$dir/spin.txt"; exit 2; }
	(cd "$dir" && ./pan -m2000000 -n $4 >out.txt 2>&1) || true
	states=$(awk '/states, stored/ { n = $1 } END { print n + 0 }' "$dir/out.txt")
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$dir/out.txt" | tail -1)
	memory=$(awk '/total actual memory usage/ { n = int($1) } END { print n }' "$dir/out.txt")
	seconds=$(sed -n 's/^pan: elapsed time \(.*\) seconds/\1/p' "$dir/out.txt")
	wrong=$(grep -m1 '^pan:1:' "$dir/out.txt" | sed 's/pan:1: //; s/ (at depth.*//' || true)
}

# holds NAME OPTIONS...: the model keeps its promises in every state or, if partial is set, in as many states as fit into memory
holds() {
	search "$@"
	result="no error"
	if [ -n "${partial:-}" ] && [ -z "$wrong" ] && grep -q 'errors: 0' "$dir/out.txt" && grep -q 'reached -DMEMLIM bound' "$dir/out.txt"; then
		result="no error until memory was full"
	elif grep -qE 'Search not completed|max search depth too small|out of memory|memory limit|VECTORSZ' "$dir/out.txt" || ! grep -q 'errors: 0' "$dir/out.txt"; then
		result="FAILED: ${wrong:-the search is truncated}"
		failed=1
		if [ -n "$wrong" ]; then trace "$1" failed-; fi
	fi
	printf "$format" "$1" "$states" "$depth" "${memory}" "$seconds" "$result"
}

# breaks NAME OPTIONS...: a mutant has a counterexample, of which the shortest is kept
breaks() {
	search "$1" "$2" "${3:--DSAFETY -DBFS}" "${4:-}"
	result="caught"
	if [ -z "$wrong" ]; then result="FAILED: not caught"; failed=1; else trace "$1" ""; fi
	printf "$format" "$1" "$states" "$depth" "${memory}" "$seconds" "$result"
}

# trace writes the steps that led to the error of the last search
trace() {
	(cd "$work/$1" && ./pan -r 2>/dev/null || true) |
		sed -n '1,/^spin: trail ends/p' | grep -vE 'D_STEP|^[[:space:]]*[0-9]+:|^#|^$|^spin:|^pan:|^MSC|^Never' >"$work/$1/steps" || true
	mkdir -p traces
	{ cat "$work/$1/steps"; printf '*** %s\n' "$wrong"; } >"traces/$2$1.txt"
}

# Mutants: for each promise one that breaks it, so that no assertion is idle. The simulator breaks the library in more ways: internal/test/sim/mutants_test.go.
#   clock-beyond-inequality   P2: one tick more of error than the inequality allows
#   forget-removal            P2: a stand-down after a deletion as after an expiry
#   believe-short-leases      P2: a takeover after the lease that a stranger states
#   freeze-sight              P2: a forged notification is not replaced by the genuine one that follows
#   release-early             P3
#   repeat-numbers            P5
#   abdicate                  P6
#   adopt-ghosts              P7
#   create-blindly            P8
#   take-over-too-early       P10
#   ignore-lower-revisions    P11
mutants() {
	breaks clock-beyond-inequality "-DEARLY=3 -DFAULTS=1 -DSLIPS=1"
	breaks forget-removal          "-DFORGET_REMOVAL -DFAULTS=2 -DSLIPS=0"
	breaks believe-short-leases    "-DBELIEVE_SHORT -DFAULTS=1 -DSLIPS=0"
	breaks freeze-sight            "-DFREEZE_SIGHT -DFAULTS=1 -DSLIPS=0"
	breaks release-early           "-DRELEASE_EARLY -DFAULTS=1 -DSLIPS=0"
	breaks repeat-numbers          "-DREPEAT_NUMBERS -DFAULTS=1 -DSLIPS=0"
	breaks abdicate                "-DABDICATE -DFAULTS=1 -DSLIPS=0"
	breaks adopt-ghosts            "-DADOPT_GHOSTS -DFAULTS=1 -DSLIPS=0"
	breaks create-blindly          "-DCREATE_BLINDLY -DFAULTS=1 -DSLIPS=0 -DLIVENESS -DNO_LATE_WRITES" " " "-a"
	breaks take-over-too-early     "-DLAPSE=LEASE -DFAULTS=1 -DSLIPS=1"
	breaks ignore-lower-revisions  "-DIGNORE_LOWER_REVISIONS -DFAULTS=2 -DSLIPS=0"
	return $failed
}

# Mutants of sessions. All let two lead one key:
#   believe-a-closing     a session that was closed may have a lease all the same: its closing is no proof for others
#   close-blindly         closes a session over another renewal than the one that was timed
#   close-too-early       times a lease without regard to the clocks
#   forget-the-wait       takes over from somebody who was still waiting for the lease of a third
#   restate-nothing       releases a session that was still waiting for the lease of another, and does not say so
#   trust-an-empty-key    takes what was never claimed at once: the bucket may have been made again
#   prove-nothing         and leads at once, without a renewal in this bucket, when its session is old enough
#   trust-an-eviction     takes an evicted claim at once
#   believe-an-earlier-bucket   believes of a bucket that was made again what it was told of the one before
#   settle-blindly        writes that a bucket is settled in which its session may not be
#   verify-too-early      extends the lease when its renewal is delivered, whatever was left out before because it was replaced
#   renew-unverified      extends the lease although its claims may be gone
#   keep-claims           a session that is over leaves claims behind in memory
#   outlive-the-session   leads by a claim after the lease of its session
#   release-before-work   releases a claim while its work runs
mutants_of_sessions() {
	model=session.pml
	breaks believe-a-closing   "-DBELIEVE_CLOSER"
	breaks close-blindly       "-DCLOSE_BLINDLY"
	breaks close-too-early     "-DLAPSE=LEASE"
	breaks forget-the-wait     "-DFORGET_WAIT"
	breaks restate-nothing     "-DRESTATE_NOTHING -DS=3 -DFAULTS=1 -DSLIPS=0 -DLEASE=1"
	breaks trust-an-empty-key  "-DTRUST_EMPTY"
	breaks prove-nothing       "-DPROVEN_AT_ONCE"
	breaks trust-an-eviction   "-DTRUST_EVICTION"
	breaks believe-an-earlier-bucket "-DSETTLES -DBELIEVE_EARLIER"
	breaks settle-blindly      "-DSETTLES -DSETTLE_BLINDLY"
	breaks verify-too-early    "-DLEFT_OUT -DFAULTS=1 -DLATES=1"
	breaks renew-unverified    "-DUNVERIFIED"
	breaks keep-claims         "-DKEEP_CLAIMS"
	breaks outlive-the-session "-DNO_DEADLINE"
	breaks release-before-work "-DRELEASE_EARLY"
	return $failed
}

(mutants && mutants_of_sessions) >"$work/mutants.txt" &
printf "$format" configuration states depth MB seconds result
holds two-slow-clocks    "-DN=2 -DFAULTS=1 -DSLIPS=1 -DFORGERY=0" "-O1 -DSAFETY" ""
holds two-forgers        "-DN=2 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DFORGERY=0 -DNO_DISASTERS -DNO_LATE_WRITES" "-O1 -DSAFETY" ""
holds three              "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DNO_DISASTERS" "-O1 -DSAFETY" ""
holds liveness           "-DN=2 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DLIVENESS" "-O1" "-a"
model=session.pml
holds sessions           "-DS=2 -DK=1 -DFAULTS=1 -DSLIPS=2" "-O1 -DSAFETY" ""
holds late-renewals      "-DS=2 -DK=1 -DFAULTS=1 -DSLIPS=1 -DLATES=1" "-O1 -DSAFETY" ""
holds settled            "-DSETTLES -DS=2 -DK=1 -DFAULTS=1 -DSLIPS=1" "-O1 -DSAFETY" ""
holds two-keys           "-DS=2 -DK=2 -DFAULTS=1 -DSLIPS=0 -DLEASE=1" "-O1 -DSAFETY -DCOLLAPSE" ""
holds three-sessions     "-DS=3 -DK=1 -DFAULTS=0 -DSLIPS=0 -DLEASE=1" "-O1 -DSAFETY -DCOLLAPSE" ""
model=election.pml
if [ "${1:-}" = full ]; then
	holds three-forgers "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DFORGERY=0 -DNO_DISASTERS" "-O1 -DSAFETY" "-w26"
	holds three-disasters "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DNO_LASTING" "-O1 -DSAFETY" "-w26"
	holds two-pairs "-DN=2 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DNO_LASTING" "-O1 -DSAFETY" "-w26"
	partial=yes holds three-pairs "-DN=3 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DNO_DISASTERS -DNO_LATE_WRITES -DNO_LASTING" "-O1 -DSAFETY" "-w26"
fi
wait $! || failed=1
cat "$work/mutants.txt"
exit $failed
