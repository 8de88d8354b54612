package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// lemma is a part of the invariant. It is about the key, about a candidate x, or about two, x and y.
type lemma struct{ name, says, text string }

var aboutKey = []lemma{
	{"kinds", "Something of the six kinds is stored.", "(and (>= kind 0) (<= kind 5))"},
	{"order", "What is stored was sent before it was stored, and that is past.", "(and (<= sent stored) (<= stored now))"},
	{"left", "Who wins stands down for no negative time.", "(>= left 0)"},
	{"enough", "What whoever wins has to stand down is enough, unless a stranger says it: nobody of earlier terms leads at its end.", "(=> (not (= kind 5)) (<= clear (+ stored left)))"},
	{"a lease", "Nobody of earlier terms leads a lease after what is stored.", "(<= clear (+ stored lease))"},
	{"strangers", "Nobody of earlier terms leads a lease after what a stranger replaced.", "(and (< wasRev rev) (=> (= kind 5) (<= wasStored stored)) (=> (and (= kind 5) (>= wasRev 0)) (<= clear (+ wasStored lease))))"},
	{"earlier history", "While a holder of an earlier history holds the key, nobody of the present one leads.", "(=> (and (= kind 1) (excused own)) (<= clear now))"},
}

// alive is that a candidate leads, or may still: by what it knows, or by the answer to its win.
const alive = "(or (= (state x) 1) (= (state x) 2) (and (= (state x) 0) (won x)))"

var aboutOne = []lemma{
	{"states", "A candidate has one of five states.", "(and (>= (state x) 0) (<= (state x) 4))"},
	{"knowledge", "Who campaigns does not know that it has won; elect, leader and draining it does. Nobody knows what is not so.", "(and (=> (= (state x) 0) (not (knows x))) (=> (or (= (state x) 1) (= (state x) 2) (= (state x) 3)) (knows x)) (=> (knows x) (won x)))"},
	{"leadership", "A leader has led, and nobody has who does not know that it won, or is elect.", "(and (=> (= (state x) 2) (led x)) (=> (led x) (and (knows x) (not (= (state x) 1)))))"},
	{"work", "Only who leads or drains works.", "(=> (works x) (and (led x) (or (= (state x) 2) (= (state x) 3))))"},
	{"doubt", "A win that is not known is in doubt, and nothing is before the win.", "(and (=> (and (won x) (not (knows x))) (doubt x)) (=> (doubt x) (won x)))"},
	{"past", "What a candidate has learnt, seen and sent is past.", "(and (<= (learnt x) now) (<= (seen x) now) (=> (doubt x) (<= (asked x) now)) (=> (won x) (>= (stated x) 0)))"},
	{"holder", "The record is its writer's last write.", "(=> (and (= kind 1) (= own x) (not (excused x))) (and (won x) (= (base x) clear) (=> (doubt x) (= (asked x) sent)) (=> (not (doubt x)) (>= (learnt x) stored))))"},
	{"release", "Whose release is stored does not work.", "(=> (and (= kind 2) (= own x) (not (excused x))) (and (or (= (state x) 3) (= (state x) 4)) (not (works x))))"},
	{"lease", "The lease of the holder is from its last write.", "(=> (and (= kind 1) (= own x) (not (excused x)) (or (= (state x) 1) (= (state x) 2))) (<= (until x) (+ sent lease)))"},
	{"over", "The lease of anybody else is over by then.", "(=> (and (or (not (= kind 1)) (not (= own x))) (not (excused x)) " + alive + ") (and (=> (knows x) (<= (until x) clear)) (=> (doubt x) (<= (+ (asked x) lease) clear))))"},
	{"stands down", "Leadership counts after all leases of earlier terms.", "(=> (and (knows x) (not (led x))) (<= (base x) (counts x)))"},
	{"will stand down", "Who does not know of its win yet will stand down for long enough.", "(=> (and (won x) (not (knows x))) (<= (base x) (+ now (stated x))))"},
	{"has stood down", "Who has led leads after all leases of earlier terms.", "(=> (led x) (<= (base x) now))"},
	{"sight", "Nobody sees the stamp of what is stored before it is stored.", "(and (>= rev 0) (=> (and (= (sight x) rev) (= (mark x) stamp)) (>= (seen x) stored)))"},
	{"read", "Nobody has read what is yet to be stored.", "(=> (read x) (and (<= 0 (sight x) rev) (=> (= (sight x) rev) (>= (seen x) stored))))"},
	{"replaced", "And so it is with what a stranger replaced.", "(=> (and (= kind 5) (>= wasRev 0) (= (sight x) wasRev) (or (read x) (= (mark x) wasStamp))) (>= (seen x) wasStored))"},
	{"bound", "Who has read what the last stranger wrote knows when nobody leads any more.", "(=> (and (= kind 5) (knowsOf x)) (or (<= clear (over x)) (<= clear now)))"},
	{"given up", "Who has given up what it held does not hold it.", "(=> (and (gone x) (not (excused x))) (and (knows x) (not (and (= kind 1) (= own x)))))"},
	{"excused", "Only who has won is excused; and a holder of an earlier history holds only until somebody of the present one has won.", "(and (=> (excused x) (won x)) (=> (and (= kind 1) (excused own)) (or (not (won x)) (excused x))))"},
	{"told", "Who knows that the history went back does not lead.", "(=> (told x) (or (= (state x) 3) (= (state x) 4)))"},
	{"numbers", "The holder's term has the highest number.", "(=> (and (won x) (not (excused x))) (and (<= (number x) rev) (=> (and (= kind 1) (not (= own x))) (< (number x) (number own)))))"},
}

var aboutTwo = []lemma{
	{"terms", "Two terms have two numbers.", "(=> (and (won x) (won y) (not (= x y)) (not (excused x)) (not (excused y))) (not (= (number x) (number y))))"},
	{"earlier terms", "The lease of an earlier term is over when a later term may begin to lead.", "(=> (and (won x) (won y) (not (excused x)) (not (excused y)) (< (number x) (number y)) " + alive + ") (and (=> (knows x) (<= (until x) (base y))) (=> (doubt x) (<= (+ (asked x) lease) (base y)))))"},
}

var name = regexp.MustCompile(`[A-Za-z]+`)

// after returns the text about the state after a transition.
func (l *language) after(text string) string {
	return name.ReplaceAllStringFunc(text, func(n string) string {
		if l.key[n] != "" || l.candidate[n] != "" {
			return n + "^"
		}
		return n
	})
}

// about returns the text about other candidates than x and y.
func about(text, x, y string) string {
	return name.ReplaceAllStringFunc(text, func(n string) string {
		switch n {
		case "x":
			return x
		case "y":
			return y
		}
		return n
	})
}

// invariant returns all that the invariant says of some candidates.
func (l *language) invariant(who []string) []string {
	var all []string
	for _, m := range l.aboutKey {
		all = append(all, m.text)
	}
	for _, x := range who {
		for _, m := range l.aboutOne {
			all = append(all, about(m.text, x, ""))
		}
		for _, y := range who {
			for _, m := range l.aboutTwo {
				if x != y {
					all = append(all, about(m.text, x, y))
				}
			}
		}
	}
	return all
}

func and(all ...string) string { return "(and true " + strings.Join(all, " ") + ")" }

func sorted(m map[string]string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}
