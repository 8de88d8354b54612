package main

// rates are what the documented inequalities say about durations, for clocks of any speed within bounds. While a clock that is slow by rate shows d,
// d/(1-rate) pass; while one that is fast by rate shows d, d/(1+rate) pass. A clock that is slewed errs by a twelfth at most, one that never is by a
// thousandth. Each question has one product.
func rates() []obligation {
	const (
		twelfth, thousandth = "(and (>= rate 0) (<= rate (/ 1 12)))", "(and (>= rate 0) (<= rate (/ 1 1000)))"
		slewed, unslewed    = "(* L (/ 13 11))", "(* L (/ 12012 11000))" // what a taker's clock must show for a lease of L
		over                = "(* L (/ 12 11))"                          // when the lease of the slowest holder is over
		lease               = "(declare-const L Real) (assert (> L 0))\n(declare-const rate Real)\n"
	)
	// for how long a holder may believe in a lease of L, and how long a taker waits at least
	holder := lease + "(declare-const believes Real) (assert (<= (- believes (* believes rate)) L))\n"
	taker := func(shown string) string {
		return lease + "(declare-const waits Real) (assert (>= (+ waits (* waits rate)) " + shown + "))\n"
	}
	const tooLong, tooEarly = "(> believes " + over + ")", "(< waits " + over + ")"
	ttl := "(declare-const ttl Real) (assert (> ttl 0))\n"
	// how long a taker waits at most that trusts a stated lease, by the slowest clock that is slewed
	longest := ttl + "(declare-const stated Real) (declare-const trusted Real) (assert (> stated 0))\n" +
		"(define-fun waits () Real (* trusted (/ 13 11) (/ 12 11)))\n"
	expiry := `(declare-const ttl Real) (declare-const margin Real) (declare-const standDown Real) (declare-const early Real)
(declare-const slow Real) (declare-const fast Real) (assert (and (>= slow 0) (>= fast 0)))
(declare-const believes Real) (assert (<= believes (+ (- ttl margin) slow)))             ; the holder's clock loses so much over its lease
(declare-const waits Real) (assert (>= waits (- standDown fast)))                        ; and the winner's gains so much over its stand-down
`
	return []obligation{
		{"rates / a lapsed lease is over by then", script(holder, twelfth, tooLong), holds},
		{"rates / a slower holder believes for longer", script(holder, "(= rate (/ 1 11))", tooLong), happens},
		{"rates / no taker is earlier whose clock is never slewed", script(taker(unslewed), thousandth, tooEarly), holds},
		{"rates / nor one whose clock is", script(taker(slewed), twelfth, tooEarly), holds},
		{"rates / faster clocks are earlier that are never slewed", script(taker(unslewed), "(= rate (/ 1 999))", tooEarly), happens},
		{"rates / and those that are", script(taker(slewed), "(= rate (/ 1 11))", tooEarly), happens},
		{"rates / a clock that is slewed needs the longer wait", script(taker(unslewed), twelfth, tooEarly), happens},
		{"rates / half of a percent is too little", script(taker("(* L (/ 201 200))"), thousandth, tooEarly), happens},
		{"rates / a lease with the default margin is taken over before the key expires", script(ttl, "(>= (* 0.9 ttl (/ 12012 11000)) ttl)"), holds},
		{"rates / one with a margin of a fiftieth is not", script(ttl, "(>= (* 0.98 ttl (/ 12012 11000)) ttl)"), happens},
		{"rates / any lease that is stated is waited for longer than 1.3 TTLs", script(longest, "(= trusted stated)", "(> waits (* 1.3 ttl))"), happens},
		{"rates / none that is taken to be a TTL at most", script(longest, "(= trusted (ite (< stated ttl) stated ttl))", "(> waits (* 1.3 ttl))"), holds},
		{"rates / after an expiry and a stand-down the lease is over", script(expiry, "(>= (+ standDown margin) (+ early slow fast))", "(> believes (+ (- ttl early) waits))"), holds},
		{"rates / with clocks beyond that it may not be", script(expiry, "(< (+ standDown margin) (+ early slow fast))", "(> believes (+ (- ttl early) waits))"), happens},
	}
}
