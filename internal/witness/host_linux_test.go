package witness

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// relay passes on what programs and a witness write, as socat does, and returns the path of its socket.
func relay(t *testing.T, to string) string {
	g, path := NewWithT(t), socketPath(t)
	socket, err := net.Listen("unix", path)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for {
			program, err := socket.Accept()
			if err != nil {
				return
			}
			witness, err := net.Dial("unix", to)
			if err != nil {
				_ = program.Close()
				continue
			}
			go func() { _, _ = io.Copy(witness, program); _ = witness.Close() }()
			go func() { _, _ = io.Copy(program, witness); _ = program.Close() }()
		}
	}()
	return path
}

func TestProgramBehindARelayIsRefusedAndLogsIt(t *testing.T) {
	h, log := startHost(t), make(messages, 100)
	teller := OfHost(relay(t, h.path), log.logger())
	defer teller.Close()
	teller.Began(*newTerm().Began)
	log.awaits(h, "There is no witness")
	h.log.awaits(h, "A program that connected is not watched")
	_, err := join(t.Context(), relay(t, h.path), log.logger())
	h.Expect(err).To(MatchError(ContainSubstring("without a relay")))
	h.Expect(h.log).NotTo(Receive(ContainSubstring("Term is watched")), "no secret has passed the relay")
}

// introducedBy returns what a witness makes of a program that passes other descriptors than its own.
func introducedBy(t *testing.T, fds ...int) (*Process, error) {
	g, path := NewWithT(t), socketPath(t)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = socket.Close() }()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	line, err := encode(message{Hello: &hello{}})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = conn.WriteMsgUnix(line, unix.UnixRights(fds...), nil)
	g.Expect(err).NotTo(HaveOccurred())
	accepted, err := socket.AcceptUnix()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = accepted.Close() })
	return meet(accepted)
}

func TestProgramIsNotDeadBeforeItsOwnProcessIs(t *testing.T) {
	g := NewWithT(t)
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(child.Start()).To(Succeed())
	pidfd, err := openPidfd(child.Process.Pid)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = unix.Close(pidfd) }()
	p, err := introducedBy(t, pidfd)
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	g.Expect(in.Close()).To(Succeed())
	g.Expect(child.Wait()).To(Succeed())
	g.Expect(waitReadable(t.Context(), p.pidfds[0])).To(Succeed(), "the process that was passed is dead")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	g.Expect(p.Wait(ctx)).To(MatchError(context.DeadlineExceeded), "the one that passed it is not")
	g.Expect(p.ImageEnded()).To(BeFalse())
}

func TestWhatIsNoProcessIsNotTakenForOne(t *testing.T) {
	g := NewWithT(t)
	r, w, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = r.Close() }()
	defer func() { _ = w.Close() }()
	open := openDescriptors(g)
	for _, fds := range [][]int{{int(r.Fd())}, {int(r.Fd()), int(w.Fd())}, {int(r.Fd()), int(w.Fd()), int(r.Fd()), int(w.Fd())}} {
		_, err = introducedBy(t, fds...)
		g.Expect(err).To(MatchError(errNoProcess))
	}
	g.Expect(openDescriptors(g)-open).To(BeNumerically("<=", 2*3), "no more than both ends of the connections is left open")
}

func TestFileThatNobodyMapsIsNoImage(t *testing.T) {
	g := NewWithT(t)
	pidfd, err := openPidfd(os.Getpid())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = unix.Close(pidfd) }()
	file, err := unix.MemfdCreate("nobody's", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = unix.Close(file) }()
	p, err := introducedBy(t, pidfd, file)
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	g.Expect(p.ImageEnded()).To(BeFalse(), "this process lives on")
}

func TestImageRunsForAsLongAsThisProcess(t *testing.T) {
	g := NewWithT(t)
	image := ownImage()
	g.Expect(image).NotTo(BeNil())
	g.Expect(seal(image)).To(MatchError(unix.EBUSY))
	g.Expect(exec.Command("true").Run()).To(Succeed(), "which shares the memory of this process until it executes")
	g.Expect(seal(image)).To(MatchError(unix.EBUSY))
}

func openDescriptors(g Gomega) int {
	entries, err := os.ReadDir("/proc/self/fd")
	g.Expect(err).NotTo(HaveOccurred())
	return len(entries)
}
