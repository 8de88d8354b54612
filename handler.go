package election

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Handler answers GET and HEAD of two paths, for load balancers and for probes such as those of Kubernetes. It asks nobody
// and never waits, so a probe of a second's patience will do, and what it says is of the instant of the request.
//
// /leader is 200 while [Election.IsLeader] is true, and else 503: before Start, after Stop, for every standby and
// leader-elect. The body is the [Status] as JSON. An answer is no lease: what is sent on to a leader by it may reach one
// that leads no longer.
//
// /healthz is 200, and 503 only where a new process would do better than this one: when a lease has been over for 2 s and
// its candidate has not stood down, as after a suspension, or when the loop is stuck: when it was busy for 16 s with what
// ends sooner, such as a [Backoff] or a bucket that does not heed its context, or is 8 s late to campaign or renew; or when
// callbacks or work have not returned within the release timeout and 8 s after their term ended, see [WithReleaseTimeout]; and once
// the connection was closed for good, which ended the election.
// A standby is healthy, and so is one that sleeps until its next campaign, is paused, waits for a server that cannot be
// reached, or is ill by its [WithHealthCheck], which hands over in order; and one that does not run. The body is a JSON object
// with "healthy", "why" where it is not, "name", "key", "state" and "doing". Let a probe fail twice before anything is
// started again: a process that was paused takes a moment to come to itself.
//
// All else is 404, and methods that could change anything are 405. It may be mounted below a prefix by [http.StripPrefix].
// Nothing is kept back that [Status] has, so mind who can reach it.
func (e *Election) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		var answer func() (well bool, body any)
		switch strings.TrimPrefix(r.URL.Path, "/") { // StripPrefix may take the slash as well
		case "leader":
			answer = e.answerLeader
		case "healthz":
			answer = e.answerHealth
		default:
			http.Error(w, "there is nothing here: ask for /leader or /healthz", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "nothing can be changed here: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		well, body := answer()
		code := http.StatusOK
		if !well {
			code = http.StatusServiceUnavailable
		}
		text, err := json.Marshal(body)
		if err != nil { // neither body has what cannot be encoded
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		text = append(text, '\n')
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(code)
		if r.Method != http.MethodHead {
			_, _ = w.Write(text) // who asked may be gone
		}
	})
}

func (e *Election) answerLeader() (well bool, body any) {
	s := e.Status()
	return s.IsLeader, s
}

// wellness is the body of an answer about health.
type wellness struct {
	Healthy bool   `json:"healthy"`
	Why     string `json:"why,omitempty"`
	Name    string `json:"name"`
	Key     string `json:"key"`
	State   State  `json:"state"`
	Doing   string `json:"doing,omitempty"`
}

func (e *Election) answerHealth() (well bool, body any) {
	h := wellness{Why: e.stuck(), Name: e.name, Key: e.key, State: e.State()}
	h.Healthy = h.Why == ""
	if b := e.pulse.Load(); b != nil {
		h.Doing = b.doing
	}
	return h.Healthy, h
}
