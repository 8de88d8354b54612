package main

// rates are what the documented inequalities say about durations, for clocks of any speed within bounds. A clock that shows d has let between
// d/(1+rate) and d/(1-rate) pass. The allowance for clocks is 1/200, and no clock errs by more than 1/401: then the speeds of two differ by no more
// than the allowance. Each question has one product.
func rates() []obligation {
	holder := `(declare-const L Real) (assert (> L 0))
(declare-const rate Real)
(declare-const believes Real) (assert (<= (- believes (* believes rate)) L))             ; for how long a holder may believe in a lease of L
`
	taker := `(declare-const L Real) (assert (> L 0))
(declare-const rate Real)
(declare-const waits Real) (assert (>= (+ waits (* waits rate)) (* L (/ 201 200))))      ; how long a taker waits at least
`
	const slow, bound = "(* L (/ 401 400))", "(and (>= rate 0) (<= rate (/ 1 401)))"
	expiry := `(declare-const ttl Real) (declare-const margin Real) (declare-const standDown Real) (declare-const early Real)
(declare-const slow Real) (declare-const fast Real) (assert (and (>= slow 0) (>= fast 0)))
(declare-const believes Real) (assert (<= believes (+ (- ttl margin) slow)))             ; the holder's clock loses so much over its lease
(declare-const waits Real) (assert (>= waits (- standDown fast)))                        ; and the winner's gains so much over its stand-down
`
	return []obligation{
		{"rates / a lapsed lease is over by then", script(holder, bound, "(> believes "+slow+")"), holds},
		{"rates / and no taker is earlier", script(taker, bound, "(< waits "+slow+")"), holds},
		{"rates / a slower holder believes for longer", script(holder, "(= rate (/ 1 400))", "(> believes "+slow+")"), happens},
		{"rates / a faster taker is earlier", script(taker, "(= rate (/ 1 400))", "(< waits "+slow+")"), happens},
		{"rates / after an expiry and a stand-down the lease is over", script(expiry, "(>= (+ standDown margin) (+ early slow fast))", "(> believes (+ (- ttl early) waits))"), holds},
		{"rates / with clocks beyond that it may not be", script(expiry, "(< (+ standDown margin) (+ early slow fast))", "(> believes (+ (- ttl early) waits))"), happens},
	}
}
