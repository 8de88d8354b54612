// Controller starts a manager of controller-runtime inside Run: its controllers work on the leader only, elected over NATS.
//
// It is for controllers that have NATS at hand, and gain by a handover within milliseconds, or by a token that orders their terms. The
// manager's own election stays off. A manager cannot be started twice, so each term has a manager of its own. The controller here
// keeps a checksum of each ConfigMap with the label checksum=wanted. Beside it, it writes the token of its term, and it leaves alone what
// a newer leader has written. The API server itself refuses an update of anything but the version that was read.
//
//	cd examples/controller && go run .                                   # three candidates, on servers in this process
//	NATS_URL=nats://127.0.0.1:4222 go run . -api http://127.0.0.1:8001   # one candidate, on the cluster that "kubectl proxy" leads to
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/controller/internal/apiserver"
	"github.com/natscampaign/election/examples/internal/demo"
)

var api = flag.String("api", "", "URL of an API server without login, such as kubectl proxy's; default: the pod's, or a small one here")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	if err := demo.Rolling(ctx, log, candidate); err != nil { // in a program of yours: candidate(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// candidate campaigns until ctx ends, and runs the manager while it leads.
func candidate(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "controller"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	cluster, err := restConfig(log)
	if err != nil {
		return err
	}
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		log.Info("Leading", "name", name, "term", term.Number)
		mgr, err := ctrl.NewManager(cluster, ctrl.Options{
			LeaderElection: false,
			Metrics:        server.Options{BindAddress: "0"},
			Controller:     config.Controller{SkipNameValidation: new(true)}, // the next term has a controller of the same name
			Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{"checksum": "wanted"})},
			}},
		})
		if err != nil {
			return err
		}
		r := &reconciler{Client: mgr.GetClient(), term: term, log: log.With("name", name)}
		if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("checksum").Complete(r); err != nil {
			return err
		}
		return mgr.Start(ctx) // returns when all that it started has stopped; then the key is released
	})
}

const sumAnnotation, tokenAnnotation = "example.com/checksum", "example.com/token"

// reconciler is the controller of one term.
type reconciler struct {
	client.Client
	term election.Term
	log  *slog.Logger
}

var errNewerLeader = errors.New("a newer leader has written this object")

// Reconcile writes the checksum of a ConfigMap into an annotation, unless it is there.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if m.Annotations[tokenAnnotation] > r.term.Token() {
		return ctrl.Result{}, errNewerLeader
	}
	text, err := json.Marshal(m.Data)
	if err != nil {
		return ctrl.Result{}, err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(text))
	if m.Annotations[sumAnnotation] == sum {
		return ctrl.Result{}, nil
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[sumAnnotation], m.Annotations[tokenAnnotation] = sum, r.term.Token()
	if err := r.Update(ctx, &m); err != nil { // refused if anybody else wrote it since it was read
		return ctrl.Result{}, err
	}
	r.log.Info("Checksum written", "object", req.String(), "term", r.term.Number, "checksum", sum[:8])
	return ctrl.Result{}, nil
}

// restConfig returns how to reach the API server.
func restConfig(log *slog.Logger) (*rest.Config, error) {
	if *api == "" {
		cluster, err := rest.InClusterConfig()
		if !errors.Is(err, rest.ErrNotInCluster) {
			return cluster, err
		}
		url, err := apiserver.Shared()
		if err != nil {
			return nil, err
		}
		log.Info("Using a small API server in this process", "url", url)
		return &rest.Config{Host: url, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, nil
	}
	return &rest.Config{Host: *api, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, nil
}
