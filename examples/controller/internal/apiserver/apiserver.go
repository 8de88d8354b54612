// Package apiserver is the part of a Kubernetes API server that a controller of ConfigMaps needs: discovery, list, watch, get, create
// and update, and resource versions by which a stale update is refused. It keeps everything in memory. It knows no login, no admission
// and no validation, and the label selector of a watch looks at an object as it is now.
package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var resource = schema.GroupResource{Resource: "configmaps"}

// Server is the server's handler. Make it with [New].
type Server struct {
	http.Handler

	mu      sync.Mutex
	objects []corev1.ConfigMap // as they are now
	changes []change           // all of them; the last has the version of the server
	changed chan struct{}      // closed at the next change
}

// change is one event of a watch. The version of the server after the first change is 1.
type change struct {
	Type   string           `json:"type"` // ADDED or MODIFIED
	Object corev1.ConfigMap `json:"object"`
}

// New returns a server without objects.
func New() *Server {
	s := &Server{changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET /api", answer(func(*http.Request) (any, error) {
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, nil
	}))
	mux.Handle("GET /apis", answer(func(*http.Request) (any, error) {
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}, nil
	}))
	mux.Handle("GET /api/v1", answer(func(*http.Request) (any, error) {
		return metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{
				Name: "configmaps", SingularName: "configmap", Namespaced: true, Kind: "ConfigMap",
				Verbs: metav1.Verbs{"create", "get", "list", "update", "watch"},
			}},
		}, nil
	}))
	mux.HandleFunc("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if watch, _ := strconv.ParseBool(r.FormValue("watch")); watch && r.FormValue("sendInitialEvents") == "" {
			s.watch(w, r)
			return
		}
		answer(s.list).ServeHTTP(w, r)
	})
	mux.Handle("GET /api/v1/namespaces/{namespace}/configmaps/{name}", answer(s.get))
	mux.Handle("PUT /api/v1/namespaces/{namespace}/configmaps/{name}", answer(s.update))
	mux.Handle("POST /api/v1/namespaces/{namespace}/configmaps", answer(s.create))
	s.Handler = mux
	return s
}

// answer returns a handler that sends what f returns, or the status that its error is.
func answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := f(r)
		code := http.StatusOK
		if err != nil {
			refusal, ok := errors.AsType[*apierrors.StatusError](err)
			if !ok {
				refusal = apierrors.NewBadRequest(err.Error())
			}
			refusal.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			body, code = refusal.ErrStatus, int(refusal.ErrStatus.Code)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // the client may be gone
	})
}

// find returns where the object that a request names is; -1 if it does not exist. The caller holds the lock.
func (s *Server) find(namespace, name string) int {
	return slices.IndexFunc(s.objects, func(m corev1.ConfigMap) bool { return m.Namespace == namespace && m.Name == name })
}

// store notes a change of an object, which gets the next version. The caller holds the lock.
func (s *Server) store(kind string, m corev1.ConfigMap) corev1.ConfigMap {
	m.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	m.ResourceVersion = strconv.Itoa(len(s.changes) + 1)
	s.changes = append(s.changes, change{kind, m})
	close(s.changed)
	s.changed = make(chan struct{})
	return m
}

func (s *Server) get(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(r.PathValue("namespace"), r.PathValue("name"))
	if i < 0 {
		return nil, apierrors.NewNotFound(resource, r.PathValue("name"))
	}
	return s.objects[i], nil
}

func (s *Server) create(r *http.Request) (any, error) {
	var m corev1.ConfigMap
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Namespace = r.PathValue("namespace")
	if s.find(m.Namespace, m.Name) >= 0 {
		return nil, apierrors.NewAlreadyExists(resource, m.Name)
	}
	m = s.store("ADDED", m)
	s.objects = append(s.objects, m)
	return m, nil
}

// update refuses an update of another version than the current one.
func (s *Server) update(r *http.Request) (any, error) {
	var m corev1.ConfigMap
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(r.PathValue("namespace"), r.PathValue("name"))
	if i < 0 {
		return nil, apierrors.NewNotFound(resource, r.PathValue("name"))
	}
	if now := s.objects[i].ResourceVersion; m.ResourceVersion != "" && m.ResourceVersion != now {
		return nil, apierrors.NewConflict(resource, m.Name, fmt.Errorf("version %s was read, and %s is stored", m.ResourceVersion, now))
	}
	s.objects[i] = s.store("MODIFIED", m)
	return s.objects[i], nil
}

// list refuses to begin a watch with what is there already, as older API servers do: the client lists and watches then.
func (s *Server) list(r *http.Request) (any, error) {
	if r.FormValue("sendInitialEvents") != "" {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	selector, err := labels.Parse(r.FormValue("labelSelector"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, Items: []corev1.ConfigMap{}}
	l.ResourceVersion = strconv.Itoa(len(s.changes))
	for _, m := range s.objects {
		if selector.Matches(labels.Set(m.Labels)) {
			l.Items = append(l.Items, m)
		}
	}
	return l, nil
}

// watch sends the changes after the version that the client has, until the client goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	selector, err := labels.Parse(r.FormValue("labelSelector"))
	next, err2 := strconv.Atoi(r.FormValue("resourceVersion"))
	if err = errors.Join(err, err2); err != nil || next < 0 {
		answer(func(*http.Request) (any, error) { return nil, fmt.Errorf("this watch is not possible: %w", err) }).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		_ = http.NewResponseController(w).Flush()
		s.mu.Lock()
		news, changed := slices.Clone(s.changes[min(next, len(s.changes)):]), s.changed
		s.mu.Unlock()
		for _, c := range news {
			if next++; selector.Matches(labels.Set(c.Object.Labels)) {
				_ = json.NewEncoder(w).Encode(c)
			}
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
