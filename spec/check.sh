#!/usr/bin/env bash
# Has SPIN visit every state of the model of the election protocol, in several configurations, and expects of each mutant of the model a
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

# search NAME "options of the model" "options of gcc" "options of pan": one search, in a directory of its own
search() {
	dir=$work/$1
	mkdir -p "$dir" && cp election.pml "$dir"
	(cd "$dir" && spin -a $2 election.pml >spin.txt 2>&1 && gcc -w -DVECTORSZ=1024 -DMEMLIM=12000 $3 -o pan pan.c) || { cat "$dir/spin.txt"; exit 2; }
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

# Mutants. All but three, by which nobody leads for ever, which no invariant excludes (create-blindly, believe-long-leases and
# leave-what-never-expires), have their like in spec/proof/mutants.go:
#   believe-notifications, take-over-without-lease   takes over whatever is stored
#   forget-removal           a stand-down after a deletion as after an expiry
#   clock-beyond-inequality  too short a stand-down for the clock of the server: one tick more of error than the inequality allows
#   abdicate                 gives up when a renewal is not answered
#   ignore-lower-revisions   leads on although the history went back
#   take-over-too-early      takes over at once; too early a takeover for the clocks
#   take-over-after-a-gap    keeps what it saw when it may have missed something
#   repeat-numbers           all terms have one number
#   believe-announcements    times a lease by an announcement: of the next write, which the holder makes
#   believe-attempts         takes what a stranger can choose for the stamp: it announces the next write but one, and makes it itself
#   trust-the-source         takes no notification to be lost
#   freeze-sight             a notification from the future is not replaced by the genuine one that follows
# and the others by their own names, or longer ones.
mutants() {
	breaks no-stand-down           "-DNO_STAND_DOWN -DFAULTS=1 -DSLIPS=0"
	breaks no-deadline             "-DNO_DEADLINE -DFAULTS=1 -DSLIPS=0"
	breaks believe-notifications   "-DBELIEVE_NOTIFICATIONS -DFAULTS=1 -DSLIPS=0"
	breaks ignore-lower-revisions  "-DIGNORE_LOWER_REVISIONS -DFAULTS=2 -DSLIPS=0"
	breaks adopt-ghosts            "-DADOPT_GHOSTS -DFAULTS=1 -DSLIPS=0"
	breaks release-early           "-DRELEASE_EARLY -DFAULTS=1 -DSLIPS=0"
	breaks forget-removal          "-DFORGET_REMOVAL -DFAULTS=2 -DSLIPS=0"
	breaks lead-over-any-release   "-DLEAD_OVER_ANY_RELEASE -DFAULTS=2 -DSLIPS=1"
	breaks clock-beyond-inequality "-DEARLY=3 -DFAULTS=1 -DSLIPS=1"
	breaks abdicate                "-DABDICATE -DFAULTS=1 -DSLIPS=0"
	breaks repeat-numbers          "-DREPEAT_NUMBERS -DFAULTS=2 -DSLIPS=0"
	breaks create-blindly          "-DCREATE_BLINDLY -DFAULTS=1 -DSLIPS=0 -DLIVENESS -DNO_LATE_WRITES" " " "-a"
	breaks take-over-too-early     "-DLAPSE=LEASE -DFAULTS=1 -DSLIPS=1"
	breaks take-over-after-a-gap   "-DKEEP_SIGHT -DFAULTS=1 -DSLIPS=0"
	breaks take-over-without-lease "-DTAKE_OVER_BARE -DFAULTS=1 -DSLIPS=0"
	breaks believe-announcements   "-DANNOUNCED=1 -DFAULTS=1 -DSLIPS=0"
	breaks believe-attempts        "-DANNOUNCED=2 -DBELIEVE_ATTEMPTS -DFAULTS=1 -DSLIPS=0"
	breaks trust-the-source        "-DTRUST_SOURCE -DFAULTS=1 -DSLIPS=0"
	breaks freeze-sight            "-DANNOUNCED=2 -DFREEZE_SIGHT -DFAULTS=1 -DSLIPS=0"
	breaks believe-short-leases    "-DBELIEVE_SHORT -DFAULTS=1 -DSLIPS=0"
	breaks believe-long-leases     "-DBELIEVE_LONG -DFAULTS=1 -DSLIPS=0 -DLIVENESS -DNO_LATE_WRITES" " " "-a"
	breaks leave-what-never-expires "-DLEAVE_WHAT_NEVER_EXPIRES -DFAULTS=1 -DSLIPS=0 -DLIVENESS -DNO_LATE_WRITES" " " "-a"
	return $failed
}

mutants >"$work/mutants.txt" &
printf "$format" configuration states depth MB seconds result
holds two-slow-clocks    "-DN=2 -DFAULTS=1 -DSLIPS=1 -DFORGERY=0" "-O1 -DSAFETY" ""
holds two-forgers        "-DN=2 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DFORGERY=0 -DNO_DISASTERS -DNO_LATE_WRITES" "-O1 -DSAFETY" ""
holds three              "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DNO_DISASTERS" "-O1 -DSAFETY" ""
holds liveness           "-DN=2 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DLIVENESS" "-O1" "-a"
if [ "${1:-}" = full ]; then
	holds three-forgers "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DFORGERY=0 -DNO_DISASTERS" "-O1 -DSAFETY" "-w26"
	holds three-disasters "-DN=3 -DFAULTS=1 -DSLIPS=0 -DEARLY=3 -DNO_LASTING" "-O1 -DSAFETY" "-w26"
	holds two-pairs "-DN=2 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DNO_LASTING" "-O1 -DSAFETY" "-w26"
	partial=yes holds three-pairs "-DN=3 -DFAULTS=2 -DSLIPS=0 -DEARLY=3 -DNO_DISASTERS -DNO_LATE_WRITES -DNO_LASTING" "-O1 -DSAFETY" "-w26"
fi
wait $! || failed=1
cat "$work/mutants.txt"
exit $failed
