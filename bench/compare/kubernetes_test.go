//go:build linux

package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// kubernetesCandidate is an elector of client-go with a LeaseLock, as in client-go's example. It leads from OnStartedLeading until
// the context of OnStartedLeading ends; an orderly stop ends the context of Run.
type kubernetesCandidate struct {
	place
	*comparison
	client coordination.CoordinationV1Interface
	sent   *sentHTTP
}

// sentHTTP counts requests.
type sentHTTP struct {
	http.RoundTripper
	n atomic.Int64
}

func (s *sentHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	s.n.Add(1)
	return s.RoundTripper.RoundTrip(r)
}

// leases is as much of the Kubernetes API as a LeaseLock asks for: to get, create and update leases, where an update of another
// resource version than the last is refused.
type leases struct {
	mu      sync.Mutex
	version int
	stored  map[string]*coordinationv1.Lease
}

func (l *leases) handler() http.Handler {
	const collection = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+collection+"/{name}", l.get)
	mux.HandleFunc("POST "+collection, l.create)
	mux.HandleFunc("PUT "+collection+"/{name}", l.update)
	return mux
}

func (l *leases) get(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease, ok := l.stored[r.PathValue("name")]
	if !ok {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	answer(w, http.StatusOK, lease)
}

func (l *leases) create(w http.ResponseWriter, r *http.Request) {
	l.write(w, r, func(lease, now *coordinationv1.Lease) metav1.StatusReason {
		if now != nil {
			return metav1.StatusReasonAlreadyExists
		}
		return ""
	}, http.StatusCreated)
}

func (l *leases) update(w http.ResponseWriter, r *http.Request) {
	l.write(w, r, func(lease, now *coordinationv1.Lease) metav1.StatusReason {
		switch {
		case now == nil:
			return metav1.StatusReasonNotFound
		case lease.ResourceVersion != "" && lease.ResourceVersion != now.ResourceVersion:
			return metav1.StatusReasonConflict
		}
		return ""
	}, http.StatusOK)
}

// write stores the lease of the request, unless refused has a reason against it.
func (l *leases) write(w http.ResponseWriter, r *http.Request, refused func(lease, now *coordinationv1.Lease) metav1.StatusReason, code int) {
	lease := &coordinationv1.Lease{}
	if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch reason := refused(lease, l.stored[lease.Name]); reason {
	case "":
	case metav1.StatusReasonNotFound:
		refuse(w, http.StatusNotFound, reason)
		return
	default:
		refuse(w, http.StatusConflict, reason)
		return
	}
	l.version++
	lease.ResourceVersion = strconv.Itoa(l.version)
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	l.stored[lease.Name] = lease
	answer(w, code, lease)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: string(reason),
	})
}

func answer(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what)
}

func startKubernetes(s *stage) {
	server := httptest.NewUnstartedServer((&leases{stored: map[string]*coordinationv1.Lease{}}).handler())
	server.EnableHTTP2 = true
	listener, err := net.Listen("tcp", s.freeAddress())
	s.check(err)
	s.check(server.Listener.Close())
	server.Listener = listener
	server.StartTLS()
	s.Cleanup(server.CloseClientConnections)
	s.endpoint = server.URL
}

func newKubernetes(_ context.Context, p place, c *comparison) (candidate, error) {
	klog.SetLogger(klog.New(nil)) // the elector logs each change to the standard error otherwise
	sent := &sentHTTP{}
	client, err := coordination.NewForConfig(&rest.Config{
		Host:            p.endpoint,
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"}, // what our server understands
		Timeout:         c.requestTimeout,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		WrapTransport: func(t http.RoundTripper) http.RoundTripper {
			sent.RoundTripper = t
			return sent
		},
	})
	return &kubernetesCandidate{p, c, client, sent}, err
}

func (c *kubernetesCandidate) campaign(ctx context.Context, report func(bool)) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: c.key, Namespace: metav1.NamespaceDefault},
				Client:     c.client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.place.name},
			},
			LeaseDuration:   c.ttl,
			RenewDeadline:   c.renewDeadline,
			RetryPeriod:     c.retryPeriod,
			ReleaseOnCancel: c.releaseOnCancel,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(leading context.Context) {
					report(true)
					select {
					case <-leading.Done():
					case <-ctx.Done(): // the work ends before the lease is released, as the example demands
					}
					report(false)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("client-go: %w", err)
		}
		elector.Run(ctx)
	}
	return nil
}

func (c *kubernetesCandidate) requests() int64 { return c.sent.n.Load() }

// Durations of client-go: its defaults, and the same in proportion to a lease of 5 s.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)
