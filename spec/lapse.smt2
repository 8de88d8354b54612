; The heart of the takeover of a lapsed lease (internal/core/lapse.go), for an SMT solver: a holder, a taker, strangers who write the key and announce what
; they like, notifications that are lost, and clocks that are slewed. spec/check.sh runs it with z3, which complains of an answer that is not as stated.
;
; All times are true time. The holder's clock is slow by slow: while it shows d, d/(1-slow) pass. The taker's clock is fast: while it shows d, d/(1+fast)
; pass, or d/(1+raw) if it is a clock that is never slewed.

(declare-const ttl Real) (assert (> ttl 0))
(declare-const lease Real) (assert (< 0 lease ttl))
(declare-const slow Real) (assert (<= 0 slow (/ 1 12)))               ; chrony slews by 83,333 millionths
(declare-const fast Real) (assert (<= 0 fast (/ 1 12)))
(declare-const raw Real) (assert (<= 0 raw (/ 1 1000)))

; The holder's last write that the server stored. The holder leads until its clock shows a lease since it sent that write.
(declare-const sent Real)
(declare-const stored Real) (assert (>= stored sent))                 ; it may be under way for any time
(declare-const until Real) (assert (<= (* (- until sent) (- 1 slow)) lease))

; What is stored at the takeover: the holder's last write, or a stranger's over it, a copy perhaps. The server stored it at stands. The taker writes over
; exactly its revision, which the server stores at taken: nothing was stored in between.
(declare-const strangers Bool)
(declare-const stands Real) (assert (ite strangers (>= stands stored) (= stands stored)))
(declare-const taken Real) (assert (>= taken stands))

; The sighting: the taker was told of a revision and a stamp at seen. The read at the takeover shows both, so the write that stands was stored by then.
(declare-const seen Real)
(define-fun stamped () Bool (>= seen stands))

; The taker waits for the lease that it believes in, and what it allows for clocks.
(declare-const believed Real)
(define-fun enough () Bool (>= believed lease))
(define-fun waitsByRaw () Bool (>= (* (- taken seen) (+ 1 raw)) (* believed (/ 12 11) (/ 1001 1000))))
(define-fun waitsBySlewed () Bool (>= (* (- taken seen) (+ 1 fast)) (* believed (/ 13 11))))

(define-fun leads () Bool (> until taken))

(echo "two leaders, by a clock that is never slewed")
(push) (assert (and stamped enough waitsByRaw leads)) (set-info :status unsat) (check-sat) (pop)

(echo "two leaders, by a clock that is slewed")
(push) (assert (and stamped enough waitsBySlewed leads)) (set-info :status unsat) (check-sat) (pop)

(echo "two leaders, if the lease is timed by an announcement")
(push) (assert (and enough waitsByRaw leads)) (set-info :status sat) (check-sat) (pop)

(echo "two leaders, if the id of the attempt stands for the stamp: nobody can quote the holder's before it is made")
(push) (assert (and (=> (not strangers) (>= seen sent)) enough waitsByRaw leads)) (set-info :status sat) (check-sat) (pop)

(echo "and only because strangers quote their own")
(push) (assert (and (not strangers) (>= seen sent) enough waitsByRaw leads)) (set-info :status unsat) (check-sat) (pop)

(echo "two leaders, if clocks may differ by 0.5 % only, and are slewed")
(push) (assert (and stamped enough leads (>= (* (- taken seen) (+ 1 raw)) (* believed (/ 201 200))))) (set-info :status sat) (check-sat) (pop)

(echo "two leaders, if the taker's clock is slewed, and is allowed for as one that is not")
(push) (assert (and stamped enough leads (>= (* (- taken seen) (+ 1 fast)) (* believed (/ 12 11) (/ 1001 1000))))) (set-info :status sat) (check-sat) (pop)

(echo "two leaders, if a stranger's record states a shorter lease, and is believed")
(push) (assert (and stamped strangers waitsByRaw leads)) (set-info :status sat) (check-sat) (pop)

; Another renewal, which the server acknowledged and lost.
(declare-const lost Real) (assert (>= lost sent))                     ; when it was sent
(declare-const untilLost Real) (assert (<= (* (- untilLost lost) (- 1 slow)) lease))
(echo "two leaders, if the server lost a renewal that it had acknowledged")
(push) (assert (and stamped enough waitsByRaw (> untilLost taken))) (set-info :status sat) (check-sat) (pop)
(echo "two leaders, if the taker saw the write again after that")
(push) (assert (and stamped enough waitsByRaw (> untilLost taken) (>= seen lost))) (set-info :status unsat) (check-sat) (pop)

; A stranger's record replaced the holder's last write, as it says itself: its header names the revision, and the server has checked that. So the taker
; knows when the holder's lease ends, if the taker had read that last write. Somebody leads at taken, when that time has passed.
(define-fun readLast () Bool (>= seen stored))                        ; the read showed its revision and stamp
(echo "two leaders, if the write was read that the record replaced")
(push) (assert (and readLast enough waitsByRaw leads)) (set-info :status unsat) (check-sat) (pop)
(declare-const earlier Real) (assert (<= earlier sent))               ; when an earlier write of the holder was stored
(echo "two leaders, if the record does not say so: the last write's notification was lost")
(push) (assert (and (>= seen earlier) enough waitsByRaw leads)) (set-info :status sat) (check-sat) (pop)
(declare-const forged Real)
(declare-const genuine Real) (assert (>= genuine stored))             ; when the notification of the last write came
(echo "two leaders, if a notification from the future is not replaced by the genuine one that follows")
(push) (assert (and (= seen forged) (<= forged genuine) enough waitsByRaw leads)) (set-info :status sat) (check-sat) (pop)
(echo "two leaders, if it is replaced")
(push) (assert (and (= seen genuine) enough waitsByRaw leads)) (set-info :status unsat) (check-sat) (pop)

; How long the taker waits at most: its clock may be slow, too.
(declare-const stated Real) (assert (> stated 0))
(define-fun longest ((l Real)) Real (* l (/ 13 11) (/ 12 11)))
(echo "nobody leads for more than 1.3 TTLs, if any stated lease is believed")
(push) (assert (> (longest stated) (* 1.3 ttl))) (set-info :status sat) (check-sat) (pop)
(echo "nobody leads for more than 1.3 TTLs, if none is believed that is longer than the TTL")
(push) (assert (> (longest (ite (< stated ttl) stated ttl)) (* 1.3 ttl))) (set-info :status unsat) (check-sat) (pop)

(echo "the takeover is later than the expiry, with the default margin of a tenth of the TTL")
(push) (assert (>= (* 0.9 ttl (/ 12 11) (/ 1001 1000)) ttl)) (set-info :status unsat) (check-sat) (pop)
(echo "the takeover is later than the expiry, with a margin of a fiftieth")
(push) (assert (>= (* 0.98 ttl (/ 12 11) (/ 1001 1000)) ttl)) (set-info :status sat) (check-sat) (pop)
