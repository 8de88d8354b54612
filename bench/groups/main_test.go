package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEachPhaseIsMeasured(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "groups")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	phases := "start,steady,kill1,kill10,rolling,server,stop"
	out, err := exec.Command(program, "-members", "6", "-keys", "12", "-ttl", "2s", "-processes", "3", "-parallel", "2", "-steady", "1s", "-phases", phases).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, phase := range strings.Split(phases, ",") {
		line := regexp.MustCompile(`(?m)^\| ` + phase + ` \| [^|]+ \| \d+ \| [^|]+ s \| [^|]+ \| 0 \| \d+ \| [\d.]+ \| -?\d+ \| \d+ s \|$`)
		if !line.Match(out) {
			t.Errorf("no line of %s without two leaders: %s", phase, out)
		}
	}
}

func TestJudgeCountsMovesVacanciesAndTwoLeaders(t *testing.T) {
	*keys = 2
	begun := time.Unix(100, 0)
	at := func(seconds float64) int64 {
		return begun.Add(time.Duration(seconds * float64(time.Second))).UnixNano()
	}
	r := judge([]event{
		{At: at(-2), Kind: "begin", Name: "a", Key: "k"},
		{At: at(-1), Kind: "begin", Name: "b", Key: "l"},
		{At: at(4), Kind: "begin", Name: "b", Key: "k"},
		{At: at(1), Kind: "end", Name: "a", Key: "k", Text: "transferred"},
		{At: at(5), Kind: "begin", Name: "c", Key: "l"},
		{At: at(6), Kind: "end", Name: "b", Key: "l", Text: "lost"},
	}, begun)
	if r.moves != 2 || r.vacancy != 3*time.Second || r.twice != 1 || r.allLed != 4*time.Second || r.reasons() != "1 lost, 1 transferred" {
		t.Errorf("%+v", r)
	}
}
