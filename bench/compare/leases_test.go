//go:build linux

package compare

import (
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

func TestAnUpdateOfAnOldVersionOfALeaseIsRefused(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer((&leases{stored: map[string]*coordinationv1.Lease{}}).handler())
	defer server.Close()
	client, err := coordination.NewForConfig(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	leases := client.Leases(metav1.NamespaceDefault)

	_, err = leases.Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	first, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	g.Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)

	holder := "me"
	changed := first.DeepCopy()
	changed.Spec.HolderIdentity = &holder
	_, err = leases.Update(t.Context(), changed, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = leases.Update(t.Context(), first, metav1.UpdateOptions{})
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)

	got, err := leases.Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Spec.HolderIdentity).To(HaveValue(Equal(holder)))
}
