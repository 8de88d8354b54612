//go:build linux || darwin

package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/validate"
)

// patience is how long a test waits for what is to happen at once.
const patience = 20 * time.Second

// messages receives each line of a log for which there is room.
type messages chan string

func (m messages) Write(b []byte) (int, error) {
	select {
	case m <- string(b):
	default:
	}
	return len(b), nil
}

func (m messages) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// awaits waits until a line with the text is logged.
func (m messages) awaits(g Gomega, text string) {
	g.Eventually(m).WithTimeout(patience).Should(Receive(ContainSubstring(text)))
}

// socketPath returns the path of a socket that is not there yet.
func socketPath(t *testing.T) string {
	folder, err := os.MkdirTemp("/tmp", "witness-") // the path of a socket must be short
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "socket")
}

// hosted is the witness of a host, which cannot connect to a server.
type hosted struct {
	Gomega
	*Host
	socket *net.UnixListener
	path   string
	log    messages
}

func startHost(t *testing.T) *hosted {
	h := &hosted{Gomega: NewWithT(t), path: socketPath(t), log: make(messages, 1000)}
	var err error
	h.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: h.path, Net: "unix"})
	h.Expect(err).NotTo(HaveOccurred())
	h.Host = NewHost(func(context.Context) (*nats.Conn, error) { return nil, errors.New("there is no server") }, nil, h.log.logger())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, h.socket) }()
	t.Cleanup(func() {
		cancel()
		h.Eventually(served).WithTimeout(patience).Should(Receive(BeNil()))
		h.Eventually(h.taken).WithTimeout(patience).Should(BeZero(), "what a program took is given back")
		h.Expect(h.path).NotTo(BeAnExistingFile())
	})
	return h
}

// taken returns how much memory all programs take.
func (h *hosted) taken() int {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	return h.ledger.total
}

// join connects this process.
func (h *hosted) join(t *testing.T) Link {
	link, err := join(t.Context(), h.path, slog.New(slog.DiscardHandler))
	h.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = link.Close() })
	return link
}

// tell tells of terms, and of those that are over.
func (h *hosted) tell(link Link, messages ...message) { h.Expect(write(link, messages)).To(Succeed()) }

// refusal returns the next reason for which a term is left to its lease.
func (h *hosted) refusal(link Link) string {
	var a answer
	h.Expect(json.NewDecoder(link).Decode(&a)).To(Succeed())
	return a.Refused
}

func newTerm(changes ...func(*Term)) message {
	term := Term{Bucket: "b", Key: "key", Name: "a", Instance: "a.1", LeaseMs: 1000, Secret: record.NewSecret()}
	for _, change := range changes {
		change(&term)
	}
	return message{Began: &term}
}

func over(m message) message {
	c := m.Began.Commitment()
	return message{Over: &c}
}

func TestWitnessOfAHostGoesOnWhenAProgramCannotConnect(t *testing.T) {
	g, log := NewWithT(t), make(messages, 100)
	path := socketPath(t)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(socket.SetDeadline(time.Unix(1, 0))).To(Succeed()) // so that the next program cannot
	h := NewHost(func(context.Context) (*nats.Conn, error) { return nil, errors.New("there is no server") }, nil, log.logger())
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx, socket) }()
	log.awaits(g, "A program cannot connect")
	g.Expect(socket.SetDeadline(time.Time{})).To(Succeed())

	link, err := join(t.Context(), path, log.logger())
	g.Expect(err).NotTo(HaveOccurred())
	term := newTerm()
	g.Expect(write(link, []message{term})).To(Succeed())
	log.awaits(g, "Term is watched")
	g.Expect(write(link, []message{over(term)})).To(Succeed())
	g.Expect(link.Close()).To(Succeed())
	cancel()
	g.Eventually(served).WithTimeout(patience).Should(Receive(BeNil()))
	g.Expect(path).NotTo(BeAnExistingFile())
}

func TestProgramThatSaysNothingOfItsProcessIsTold(t *testing.T) {
	h := startHost(t)
	for _, text := range []string{"{}\n", "GET / HTTP/1.1\r\n\r\n", `{"hello":{}}` + "\n" + `{"hello":{}}` + "\n"} {
		conn, err := net.Dial("unix", h.path)
		h.Expect(err).NotTo(HaveOccurred())
		_, err = conn.Write([]byte(text))
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(h.refusal(conn)).To(ContainSubstring("let program and witness have the same version"))
		_, err = conn.Read(make([]byte, 1))
		h.Expect(err).To(HaveOccurred(), "the connection has ended")
	}
}

func TestProgramLogsThatWhatItConnectedToIsNoWitness(t *testing.T) {
	for name, answer := range map[string]string{"another": "HTTP/1.1 400 Bad Request\r\n", "none": ""} {
		g, path, log := NewWithT(t), socketPath(t), make(messages, 100)
		socket, err := net.Listen("unix", path)
		g.Expect(err).NotTo(HaveOccurred())
		go func() {
			for {
				conn, err := socket.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}
		}()
		teller := OfHost(path, log.logger())
		log.awaits(g, "does not answer as a witness does")
		teller.Close()
		g.Expect(socket.Close()).To(Succeed(), name)
	}
}

func TestTermsOfOneProgramTakeNoMoreThanTheyMay(t *testing.T) {
	h := startHost(t)
	link, told := h.join(t), make(chan struct{})
	go func() {
		defer close(told)
		for range 2 * maxConnectionBytes / termBytes {
			if write(link, []message{newTerm()}) != nil {
				return
			}
		}
	}()
	h.Expect(h.refusal(link)).To(ContainSubstring("the terms of one program may take 8 MiB in the witness of a host: lead fewer keys"))
	<-told
	h.Expect(h.taken()).To(BeNumerically("<=", maxConnectionBytes))
}

func TestProgramsOfAUserWhoTakesAllThatHeMayAreToldSo(t *testing.T) {
	h := startHost(t)
	for range maxUserBytes/maxConnectionBytes - 1 {
		a, err := h.ledger.open(uint32(os.Getuid()))
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(a.take(maxConnectionBytes - connectionBytes)).To(Succeed())
		t.Cleanup(a.close)
	}
	a, err := h.ledger.open(uint32(os.Getuid()))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(a.take(maxConnectionBytes - 2*connectionBytes)).To(Succeed()) // which leaves room for one connection
	t.Cleanup(a.close)
	h.join(t)
	_, err = join(t.Context(), h.path, slog.New(slog.DiscardHandler))
	h.Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("the programs of user %d may take 32 MiB", os.Getuid()))))
}

func TestTermsThatComeAndGoTakeNoMoreThanThoseThatAreThere(t *testing.T) {
	h := startHost(t)
	link := h.join(t)
	before := h.taken()
	for i := range 5000 {
		term := newTerm(func(x *Term) { x.Bucket = fmt.Sprintf("bucket-%d", i) })
		h.tell(link, term, term, over(term), over(term))
	}
	last := newTerm()
	h.tell(link, last)
	h.Eventually(h.taken).WithTimeout(patience).Should(Equal(before + last.Began.bytes() + bucketBytes))
	h.Eventually(func() int {
		r := &h.keeper.releaser
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.client == nil {
			return 0
		}
		r.client.mu.Lock()
		defer r.client.mu.Unlock()
		return max(len(r.client.wanted), len(r.client.current.buckets))
	}).WithTimeout(patience).Should(Equal(1))
}

func TestTermThatAProgramMayNotTellIsLeftToItsLeaseAndTheProgramLogsWhy(t *testing.T) {
	for want, change := range map[string]func(*Term){
		"--allow-api-prefix '$JS.evil.API'":    func(x *Term) { x.API = "$JS.evil.API." },
		"group of processes":                   func(x *Term) { x.Group = 4711 },
		"names in the term are too long":       func(x *Term) { x.Key = strings.Repeat("k", validate.MaxKeyBytes+1) },
		"give both at most":                    func(x *Term) { x.LeaseMs = time.Hour.Milliseconds() + 1 },
		"so that it has the version":           func(x *Term) { x.Instance = "" },
		"names in the term are too long: use ": func(x *Term) { x.Name = strings.Repeat("n", validate.MaxNameBytes+1) },
	} {
		h, log := startHost(t), make(messages, 100)
		teller := OfHost(h.path, log.logger())
		teller.Began(*newTerm(change).Began)
		log.awaits(h, "The witness leaves a term to its lease")
		teller.Began(*newTerm(func(x *Term) { x.Name = "last" }).Began) // the connection goes on
		h.log.awaits(h, "name=last")
		teller.Close()

		link := h.join(t)
		h.tell(link, newTerm(change))
		h.Expect(h.refusal(link)).To(ContainSubstring(want))
	}
}

// The connection of a program that lives may end: its descriptor was closed by mistake, or by Flush.
func TestEndOfTheConnectionOfAProgramThatLivesReleasesNothing(t *testing.T) {
	s := natstest.StartTCP(t)
	nc, err := nats.Connect(s.URL(), nats.Timeout(patience))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	h := holdWith(t, nc)
	h.term.LeaseMs = 100
	p, err := OpenProcess(os.Getpid())
	h.Expect(err).NotTo(HaveOccurred())
	defer p.Close()
	k := NewKeeper(func(context.Context) (*nats.Conn, error) { return nats.Connect(s.URL(), nats.Timeout(patience)) }, slog.New(slog.DiscardHandler), nil)
	k.Keep(t.Context(), tells(h, h.term), p) // returns when the lease must be over
	h.Expect(h.read(t.Context()).Revision).To(Equal(h.revision))
}
