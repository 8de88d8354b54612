; The heart of the takeover of a lapsed lease (internal/core/lapse.go), for an SMT solver: one holder, one taker, clocks that run at
; any speed within bounds, renewals that come late, and a forged notification. spec/check.sh runs it with z3.
;
; All times are true time. A clock that shows d has let between d/(1+rate) and d/(1-rate) pass.
;
; The holder sends a write w at sent, which states a lease; the holder may believe in it until its clock shows that much.
; The taker sees w at seen, waits until its clock shows lease * (1 + allowance), reads that w is stored, and writes over exactly its
; revision, which the server applies at taken.
; The holder may have sent another renewal, later, which the server applies at renewed, or refuses.

(declare-const lease Real) (assert (> lease 0))
(declare-const allowance Real) (assert (= allowance (/ 1 200)))       ; 1 / rateAllowance
(declare-const rate Real) (assert (>= rate 0))                        ; by how much a clock is too fast or too slow

(declare-const sent Real)
(declare-const stored Real) (assert (>= stored sent))                 ; w may be under way for any time
(declare-const seen Real)
(declare-const taken Real)

; the holder's lease from w ends when its clock shows lease, and true time that passes meanwhile is at most lease / (1 - rate)
(declare-const until Real) (assert (> until sent)) (assert (<= (* (- until sent) (- 1 rate)) lease))

; another renewal: it was sent later, and extends the lease likewise if the server applied it
(declare-const again Real) (assert (> again sent))
(declare-const applied Bool)                                          ; the server applied it
(declare-const renewed Real) (assert (>= renewed again))              ; when it did
(declare-const untilAgain Real) (assert (> untilAgain again)) (assert (<= (* (- untilAgain again) (- 1 rate)) lease))

; The server applies a write only over the revision that it demands. The takeover demands that of w, so nothing had replaced w when it was applied; and
; the renewal demands that of w, which is not the last any more once the takeover was applied.
(define-fun still () Bool (=> applied (> renewed taken)))
(define-fun refused () Bool (=> applied (< renewed taken)))
; the taker's wait, and that the write it saw had been sent
(define-fun waits () Bool (>= (* (- taken seen) (+ 1 rate)) (* lease (+ 1 allowance))))
(define-fun quotes () Bool (>= seen sent))                            ; nobody can quote an attempt before it is made

; the holder leads at taken or later
(define-fun leads () Bool (or (> until taken) (and applied (> untilAgain taken))))

(define-fun precise () Bool (<= (+ 1 rate) (* (- 1 rate) (+ 1 allowance))))   ; the two speeds differ by no more than the allowance

(echo "two leaders at once, by the rule")
(push) (assert still) (assert refused) (assert waits) (assert quotes) (assert precise) (assert leads) (check-sat) (pop)

(echo "two leaders, if the clocks differ by more than is allowed for")
(push) (assert still) (assert refused) (assert waits) (assert quotes) (assert (< rate (/ 1 10))) (assert leads) (check-sat) (pop)

(echo "two leaders, if a forged notification is believed about the time")
(push) (assert still) (assert refused) (assert waits) (assert precise) (assert leads) (check-sat) (pop)

(echo "two leaders, if the server lost a renewal that it had acknowledged")
(push) (assert refused) (assert waits) (assert quotes) (assert precise) (assert leads) (check-sat) (pop)

(echo "two leaders, if the taker saw the write again after the renewal was lost")
(push) (assert refused) (assert waits) (assert quotes) (assert precise) (assert (=> applied (>= seen again))) (assert leads) (check-sat) (pop)

; A stranger writes over the record of the holder, whose lease the taker believes to be shorter than it is. The holder sent nothing that was applied since.
(declare-const overwritten Real) (assert (>= overwritten stored))
(declare-const believed Real) (assert (> believed 0))
(define-fun waitsBelieved () Bool (and (>= seen overwritten) (>= (* (- taken seen) (+ 1 rate)) (* believed (+ 1 allowance)))))
(echo "two leaders, if a stranger's record states a shorter lease, and is believed")
(push) (assert still) (assert refused) (assert (not applied)) (assert waitsBelieved) (assert precise) (assert leads) (check-sat) (pop)
(echo "two leaders, if no lease is believed that is shorter than the holder's")
(push) (assert still) (assert refused) (assert (not applied)) (assert waitsBelieved) (assert precise) (assert (>= believed lease)) (assert leads) (check-sat) (pop)
