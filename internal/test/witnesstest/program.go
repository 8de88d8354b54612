//go:build linux || darwin

// Package witnesstest is for tests and benchmarks of witnesses: it starts a program that leads, and that dies as it is told to.
package witnesstest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/test/proctest"
	"github.com/natscampaign/election/witness"
)

// Config says what the program does.
type Config struct {
	URL      string
	Name     string   // of its candidates; empty is "program"
	Buckets  []string // in each of them it takes part in all elections
	Keys     int      // how many elections there are of a bucket: key-0 and so on
	Settle   time.Duration
	Dial     string // of its witness; empty is URL
	OfHost   bool   // its witness is that of the host
	Leave    bool   // it starts a process that outlives it
	Interval time.Duration
	Quiet    bool // it has no heartbeat

	Heartbeat string // path of the file into which the work of the leader writes the time, again and again
}

// Key returns the name of an election.
func Key(i int) string { return fmt.Sprintf("key-%d", i) }

const (
	variable     = "WITNESSTEST_PROGRAM"
	nextVariable = "WITNESSTEST_NEXT" // set in an image that has replaced another
)

// Main is the program, if that is what this process was started for; then it does not return. Call it first in TestMain.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var c Config
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	fmt.Fprintln(os.Stderr, "program:", err)
	os.Exit(2)
}

func dial(url string) func(context.Context) (*nats.Conn, error) {
	return func(context.Context) (*nats.Conn, error) {
		return nats.Connect(url, nats.Timeout(20*time.Second), nats.MaxReconnects(-1))
	}
}

// start starts or finds the witness.
func (c *Config) start() (*witness.Witness, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})) // see Watched
	opts := []witness.Option{witness.WithSettleTime(c.Settle), witness.WithLogger(log)}
	if c.OfHost {
		return witness.OfHost(opts...)
	}
	url := c.URL
	if c.Dial != "" {
		url = c.Dial
	}
	return witness.Start(dial(url), opts...)
}

// run leads until it is told how to die.
func (c *Config) run() error {
	w, err := c.start()
	if err != nil {
		return err
	}
	if os.Getenv(nextVariable) != "" {
		return obey()
	}
	nc, err := dial(c.URL)(context.Background())
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if c.Leave {
		child := exec.Command("sleep", "600")
		child.Stdout, child.Stderr = nil, nil
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println("left", child.Process.Pid)
	}
	var leading sync.WaitGroup
	for _, name := range c.Buckets {
		bucket, err := election.OpenBucket(context.Background(), js, name)
		if err != nil {
			return err
		}
		for i := range c.Keys {
			leading.Add(1)
			opts := []election.Option{w.Option(), election.WithSplay(0), election.WithStandDown(0)}
			if c.Interval > 0 {
				opts = append(opts, election.WithCampaignInterval(c.Interval))
			}
			e, err := election.NewElection(c.name(), Key(i), bucket, opts...)
			if err != nil {
				return err
			}
			go func() {
				_ = e.Run(context.Background(), func(context.Context, election.Term) error {
					c.beat()
					leading.Done()
					select {}
				})
			}()
		}
	}
	leading.Wait()
	flush(w)
	fmt.Println("leads", os.Getpid())
	return obey()
}

// flush waits until the witness knows of all terms: those of which it was not told before the death are left to expire.
func flush(w *witness.Witness) {
	var o settings.Options
	w.Option()(&o)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Witness.(interface{ Flush(context.Context) }).Flush(ctx)
}

func (c *Config) name() string {
	if c.Name == "" {
		return "program"
	}
	return c.Name
}

// beat has the leader write the time, again and again, for as long as it lives.
func (c *Config) beat() {
	if c.Heartbeat == "" {
		return
	}
	f, err := os.OpenFile(c.Heartbeat, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	buffer := make([]byte, 8)
	write := func() {
		binary.LittleEndian.PutUint64(buffer, uint64(time.Now().UnixNano()))
		_, _ = f.WriteAt(buffer, 0)
	}
	write() // the program may die at once
	go func() {
		for ; ; time.Sleep(time.Millisecond) {
			write()
		}
	}()
}

// Way is a way to die.
type Way string

// The ways to die.
const (
	Kill     Way = "kill"  // kill -9
	Panic    Way = "panic" // in another goroutine
	Exit     Way = "exit"  // os.Exit(1)
	Segfault Way = "segfault"
	Memory   Way = "memory" // it takes memory until the kernel kills it; only in a control group
	Exec     Way = "exec"   // it replaces itself, and the next image has a witness, too, and takes part in nothing
)

// eaten is the memory that a program uses up.
var eaten [][]byte

// obey dies as it is told to.
func obey() error {
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	switch Way(strings.TrimSpace(line)) {
	case Panic:
		go func() { panic("told to") }()
		select {}
	case Exit:
		os.Exit(1)
	case Exec:
		_ = os.Setenv(nextVariable, "yes")
		return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	case Segfault:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case Memory:
		for {
			page := make([]byte, 4<<20)
			for i := range page {
				page[i] = byte(i)
			}
			eaten = append(eaten, page)
		}
	}
	return err
}

// Program is a program that leads.
type Program struct {
	Config
	Command *exec.Cmd
	PID     int // of the program itself, as it sees it
	Left    int // of the process that it leaves behind
	tell    *os.File
	stderr  string // the path of what it writes
	lines   *bufio.Reader
	exited  chan struct{}

	witnesses []int // the children that the program was seen with
}

// Start starts a program, and waits until it leads.
func Start(t testing.TB, c Config, changes ...func(*exec.Cmd)) *Program {
	t.Helper()
	p := Launch(t, c, changes...)
	p.Await(t)
	return p
}

// Launch starts a program.
func Launch(t testing.TB, c Config, changes ...func(*exec.Cmd)) *Program {
	t.Helper()
	if !c.Quiet && c.Heartbeat == "" {
		c.Heartbeat = filepath.Join(t.TempDir(), "heartbeat")
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Config: c, Command: exec.Command(path), exited: make(chan struct{})}
	p.Command.Env = append(os.Environ(), variable+"="+string(text))
	in, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Command.Stdin, p.Command.Stdout, p.tell, p.lines = in, told, tell, bufio.NewReader(out)
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	p.Command.Stderr, p.stderr = stderr, stderr.Name()
	for _, change := range changes {
		change(p.Command)
	}
	if err := p.Command.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Close(), told.Close()
	go func() {
		_ = p.Command.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.findWitnesses()
		_ = p.Command.Process.Kill()
		<-p.exited
		p.killWitnesses()
		_, _ = tell.Close(), out.Close()
		if text, _ := os.ReadFile(p.stderr); t.Failed() {
			t.Logf("the program and its witness wrote:\n%s", text)
		}
		_ = stderr.Close()
		if p.Left != 0 {
			_ = syscall.Kill(p.Left, syscall.SIGKILL)
		}
	})
	return p
}

// Await waits until the program leads.
func (p *Program) Await(t testing.TB) {
	t.Helper()
	for p.PID == 0 {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the program does not lead: %v", err)
		}
		if _, err := fmt.Sscanf(line, "left %d", &p.Left); err != nil {
			_, _ = fmt.Sscanf(line, "leads %d", &p.PID)
		}
	}
	p.findWitnesses()
}

// Watched returns how often a witness that the program started has learned of a term: one that has replaced another learns of all of them again. The
// program must write its stderr where Launch has it write.
func (p *Program) Watched() int {
	text, _ := os.ReadFile(p.stderr)
	return strings.Count(string(text), "Term is watched")
}

// findWitnesses notes the children of the program, while it lives.
func (p *Program) findWitnesses() {
	p.witnesses = append(p.witnesses, proctest.Children(p.Command.Process.Pid)...)
}

// killWitnesses kills the witnesses of the program once the test is over. A witness ignores TERM, and would try for as long as the lease may last to
// release a key on the server of the test.
func (p *Program) killWitnesses() {
	for _, pid := range p.witnesses {
		if session, err := unix.Getsid(pid); err == nil && session == pid { // else the number is another's now: a witness leads a session
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// Die has the program die, and returns when it was told to.
func (p *Program) Die(t testing.TB, way Way) time.Time {
	t.Helper()
	p.findWitnesses() // one may have replaced another
	told := time.Now()
	var err error
	if way == Kill {
		err = p.Command.Process.Kill()
	} else {
		_, err = fmt.Fprintln(p.tell, way)
	}
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// Exited is closed when the process that was started has ended.
func (p *Program) Exited() <-chan struct{} { return p.exited }

// LastHeartbeat returns when the work of the leader wrote last.
func (p *Program) LastHeartbeat(t testing.TB) time.Time {
	t.Helper()
	text, err := os.ReadFile(p.Heartbeat)
	if err != nil || len(text) != 8 {
		t.Fatalf("no heartbeat: %v", err)
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(text)))
}
