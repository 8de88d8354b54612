package election

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Handler answers GET and HEAD of two paths, for load balancers and for probes such as those of Kubernetes. It sends no request and never
// waits, so a probe's timeout of a second is enough, and the answer is of the instant of the request.
//
// /leader is 200 while [Election.IsLeader] is true, and else 503: before Start, after Stop, for every standby and
// leader-elect. The body is the [Status] as JSON. An answer is no lease: a request that is forwarded because of it may reach a candidate that
// leads no longer.
//
// /healthz is 200, and 503 only where a new process would do better than this one:
//
//   - A lease has been over for 2 s and its candidate has not stood down, as after a suspension.
//   - The loop is stuck. It was busy for 16 s with what ends sooner, such as a [Backoff] or a bucket that ignores its context, or it is
//     8 s late to campaign or renew.
//   - Callbacks or work have not returned within the release timeout and 8 s after their term ended, see [WithReleaseTimeout].
//   - The connection was closed for good, which ended the election.
//
// A standby is healthy, and so is a candidate that sleeps until its next campaign, is paused, waits for a server that cannot be reached,
// fails its [WithHealthCheck] (then it hands over in order), or does not run. The body is a JSON object with "healthy", "why" where it is
// not, "name", "key", "state" and "doing". Let a probe fail twice before it restarts anything: a process that was paused takes a moment to
// recover.
//
// Every other path is 404, and methods that could change anything are 405. The handler may be mounted below a prefix by
// [http.StripPrefix]. It shows all that [Status] has, so restrict who can reach it.
func (e *Election) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		var answer func() (ok bool, body any)
		switch strings.TrimPrefix(r.URL.Path, "/") { // StripPrefix may take the slash as well
		case "leader":
			answer = func() (bool, any) { s := e.Status(); return s.IsLeader, s }
		case "healthz":
			answer = e.answerHealth
		default:
			http.Error(w, "not found: use /leader or /healthz", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		ok, body := answer()
		code := http.StatusOK
		if !ok {
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
			_, _ = w.Write(text) // the client may be gone
		}
	})
}

// healthAnswer is the body of an answer about health.
type healthAnswer struct {
	Healthy bool   `json:"healthy"`
	Why     string `json:"why,omitempty"`
	Name    string `json:"name"`
	Key     string `json:"key"`
	State   State  `json:"state"`
	Doing   string `json:"doing,omitempty"`
}

func (e *Election) answerHealth() (ok bool, body any) {
	v, now := e.view(), time.Now()
	h := healthAnswer{Why: v.stuck(now), Name: e.name, Key: e.key, State: v.at(now).state, Doing: v.progress.doing}
	h.Healthy = h.Why == ""
	return h.Healthy, h
}
