package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shared starts a server for this process, on a free port of the loopback interface, and returns its URL. It runs as long as the process.
// Every 500 ms one of its three ConfigMaps changes, as if somebody edited it.
var Shared = sync.OnceValues(func() (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := New()
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	go func() {
		for i := 0; ; i++ {
			s.Edit(fmt.Sprintf("config-%d", i%3), map[string]string{"edit": fmt.Sprint(i)})
			time.Sleep(500 * time.Millisecond)
		}
	}()
	return "http://" + l.Addr().String(), nil
})

// Edit changes the data of a ConfigMap in the namespace default, as a person with an editor does. It makes the ConfigMap, with the label
// checksum=wanted, if it does not exist.
func (s *Server) Edit(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find("default", name)
	if i < 0 {
		meta := metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"checksum": "wanted"}}
		s.objects = append(s.objects, s.store("ADDED", corev1.ConfigMap{ObjectMeta: meta, Data: data}))
		return
	}
	m := *s.objects[i].DeepCopy() // watches still send the object as it was
	m.Data = data
	s.objects[i] = s.store("MODIFIED", m)
}

// Annotation returns an annotation of a ConfigMap in the namespace default; "" if there is none.
func (s *Server) Annotation(name, annotation string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find("default", name); i >= 0 {
		return s.objects[i].Annotations[annotation]
	}
	return ""
}
