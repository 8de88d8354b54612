//go:build linux || darwin

package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// The test is not parallel: the umask is that of the whole process.
func TestFileOfASocketHasAtNoTimeWiderPermissionsThanMeant(t *testing.T) {
	g := NewWithT(t)
	defer unix.Umask(unix.Umask(0))
	folder, err := os.MkdirTemp("/tmp", "socket-") // the path of a socket must be short
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "s")
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		var widest atomic.Uint32
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if info, err := os.Lstat(path); err == nil {
					widest.Or(uint32(info.Mode().Perm()))
				}
			}
		}()
		for range 500 {
			l, err := ListenUnix(path, mode)
			g.Expect(err).NotTo(HaveOccurred())
			info, err := os.Lstat(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode()).To(Equal(fs.ModeSocket | mode))
			g.Expect(l.Close()).To(Succeed())
		}
		close(stop)
		<-stopped
		g.Expect(fs.FileMode(widest.Load()) &^ mode).To(BeZero())
	}
}
