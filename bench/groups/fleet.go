package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// fleet is a server and the processes that run the members.
type fleet struct {
	ctx     context.Context
	port    string
	folder  string
	server  *process
	loads   chan load
	workers []*process
	bucket  *election.Bucket

	names [][]string // of the members that should be present, by process
	made  int        // how many members there ever were

	mu      sync.Mutex // guards what follows
	events  []event
	led     map[string]map[string]bool // by key, the members that work on it
	left    map[string]bool
	killed  map[int]int64 // when a process was killed, by its number
	process map[string]int
}

func newFleet(ctx context.Context) (f *fleet, err error) {
	f = &fleet{ctx: ctx, loads: make(chan load), names: make([][]string, *processes), workers: make([]*process, *processes), led: map[string]map[string]bool{}, left: map[string]bool{}, process: map[string]int{}}
	defer func() {
		if err != nil {
			f.end()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return f, err
	}
	f.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	if f.folder, err = os.MkdirTemp("", "groups-"); err != nil {
		return f, err
	}
	if err := f.startServer(); err != nil {
		return f, err
	}
	nc, err := nats.Connect("nats://127.0.0.1:"+f.port, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return f, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return f, err
	}
	for range 50 {
		if f.bucket, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: bucketName, TTL: *ttl}); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	for i := range f.workers {
		if err == nil {
			err = f.startWorker(i)
		}
	}
	return f, err
}

func (f *fleet) startServer() (err error) {
	f.server, err = spawn("server", func(line []byte) {
		var l load
		if json.Unmarshal(line, &l) == nil {
			f.loads <- l
		}
	}, f.port, f.folder)
	return err
}

func (f *fleet) startWorker(i int) (err error) {
	f.workers[i], err = spawn("members", f.receive, "-keys", strconv.Itoa(*keys), "-logs", *logs, f.port)
	return err
}

// end ends all processes.
func (f *fleet) end() {
	for _, w := range f.workers {
		if w != nil {
			w.kill()
		}
	}
	if f.server != nil {
		f.server.end()
	}
	_ = os.RemoveAll(f.folder)
}

// receive takes in a line of a process with members.
func (f *fleet) receive(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(os.Stderr, "not understood: %s\n", line)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(e)
	if e.Kind == "left" && e.Text != "" && f.wanted(e.Name) {
		fmt.Fprintf(os.Stderr, "%s left: %s\n", e.Name, e.Text)
	}
}

// note takes note of an event. The caller holds mu.
func (f *fleet) note(e event) {
	f.events = append(f.events, e)
	switch e.Kind {
	case "begin":
		if f.led[e.Key] == nil {
			f.led[e.Key] = map[string]bool{}
		}
		f.led[e.Key][e.Name] = true
	case "end":
		delete(f.led[e.Key], e.Name)
	case "left":
		f.left[e.Name] = true
	}
}

func (f *fleet) wanted(name string) bool { return slices.Contains(f.names[f.process[name]], name) }

// leading returns how many keys are led.
func (f *fleet) leading() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, by := range f.led {
		if len(by) > 0 {
			n++
		}
	}
	return n
}

// join starts one more member in a process.
func (f *fleet) join(i int) error {
	f.mu.Lock()
	name := fmt.Sprintf("m%05d", f.made)
	f.made++
	f.names[i], f.process[name] = append(f.names[i], name), i
	f.mu.Unlock()
	return f.workers[i].tell("start %s", name)
}

// remove takes a member from those that should be present, and has it leave or crash.
func (f *fleet) remove(how, name string) error {
	f.mu.Lock()
	i := f.process[name]
	f.names[i] = slices.DeleteFunc(f.names[i], func(other string) bool { return other == name })
	f.mu.Unlock()
	return f.workers[i].tell("%s %s", how, name)
}

func (f *fleet) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(slices.Concat(f.names...)))
}

// sleep lets time pass.
func (f *fleet) sleep(d time.Duration) error {
	select {
	case <-f.ctx.Done():
		return f.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// until waits until something holds.
func (f *fleet) until(what string, holds func() bool) error {
	for end := time.Now().Add(*patience); !holds(); {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s (%d of %d keys are led)", *patience, what, f.leading(), *keys)
		}
		if err := f.sleep(20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) allLed() error {
	return f.until("all keys are led", func() bool { return f.leading() == *keys })
}

func (f *fleet) startAll() error {
	for i := range *members {
		if err := f.join(i % *processes); err != nil {
			return err
		}
	}
	if err := f.allLed(); err != nil {
		return err
	}
	return f.settle()
}

// settle waits until all members are in the plan and its keys are led by the members that it assigns them to.
func (f *fleet) settle() error {
	return f.until("each key is led as planned", func() bool {
		e, err := f.bucket.Get(f.ctx, groupName+".plan")
		if err != nil {
			return false
		}
		var plan struct{ Keys map[string][]string }
		if json.Unmarshal(e.Value(), &plan) != nil || len(plan.Keys) != len(f.all()) {
			return false
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		for name, keys := range plan.Keys {
			for _, key := range keys {
				if !f.led[key][name] {
					return false
				}
				n++
			}
		}
		return n == *keys
	})
}

func (f *fleet) crashOne() error {
	if err := f.remove("crash", f.all()[len(f.all())/2]); err != nil {
		return err
	}
	if err := f.sleep(3 * *ttl); err != nil {
		return err
	}
	if err := f.join(0); err != nil {
		return err
	}
	return f.settle()
}

// kill kills so many processes, and starts as many members in new ones when the keys are led again.
func (f *fleet) kill(n int) error {
	lost := make([]int, n)
	for i := range n {
		f.workers[i].kill()
		now := time.Now().UnixNano()
		f.mu.Lock()
		lost[i] = len(f.names[i])
		gone := f.names[i]
		f.names[i] = nil
		for key, by := range f.led {
			for _, name := range slices.Collect(maps.Keys(by)) {
				if slices.Contains(gone, name) {
					f.note(event{At: now, Kind: "end", Name: name, Key: key, Text: "killed"})
				}
			}
		}
		f.mu.Unlock()
	}
	if err := f.allLed(); err != nil {
		return err
	}
	if err := f.settle(); err != nil {
		return err
	}
	for i := range n {
		if err := f.startWorker(i); err != nil {
			return err
		}
		for range lost[i] {
			if err := f.join(i); err != nil {
				return err
			}
		}
	}
	return f.settle()
}

func (f *fleet) roll() error {
	for group := range slices.Chunk(f.all(), *parallel) {
		for _, name := range group {
			if err := f.remove("stop", name); err != nil {
				return err
			}
		}
		if err := f.until("members leave", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return !slices.ContainsFunc(group, func(name string) bool { return !f.left[name] })
		}); err != nil {
			return err
		}
		for _, name := range group {
			if err := f.join(f.process[name]); err != nil {
				return err
			}
		}
	}
	return f.settle()
}

// planner returns the member that announced the plan last.
func (f *fleet) planner() (name string, err error) {
	e, err := f.bucket.Get(f.ctx, groupName+".planner")
	if err != nil {
		return "", err
	}
	var a struct{ By string }
	err = json.Unmarshal(e.Value(), &a)
	return a.By, err
}

func (f *fleet) crashPlanners() error {
	for range 6 {
		name, err := f.planner()
		if err != nil {
			return err
		}
		if slices.Contains(f.all(), name) {
			if err := f.remove("crash", name); err != nil {
				return err
			}
			if err := f.join(f.process[name]); err != nil {
				return err
			}
		}
		if err := f.sleep(10 * time.Second); err != nil {
			return err
		}
	}
	if err := f.sleep(2 * *ttl); err != nil {
		return err
	}
	return f.settle()
}

func (f *fleet) restartServer() error {
	f.server.kill()
	if err := f.startServer(); err != nil {
		return err
	}
	if err := f.sleep(2 * *ttl); err != nil {
		return err
	}
	return f.settle()
}

func (f *fleet) stopAll() error {
	names := f.all()
	for _, name := range names {
		if err := f.remove("stop", name); err != nil {
			return err
		}
	}
	return f.until("all members leave", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(names, func(name string) bool { return !f.left[name] })
	})
}

// load asks the server for its load.
func (f *fleet) load() load {
	_ = f.server.tell("load")
	select {
	case l := <-f.loads:
		return l
	case <-time.After(10 * time.Second):
		return load{}
	}
}

// measure runs a phase and prints its line.
func (f *fleet) measure(name string, phase func() error) error {
	begun, before, plans := time.Now(), f.load(), f.plans()
	err := phase()
	lasted, after := time.Since(begun), f.load()
	if after.InMsgs < before.InMsgs { // the server was started again meanwhile
		before = load{}
	}
	time.Sleep(200 * time.Millisecond) // until what the processes told has arrived
	f.mu.Lock()
	r := judge(f.events, begun)
	f.mu.Unlock()
	led := "-"
	if r.allLed > 0 {
		led = fmt.Sprintf("%.1f s", r.allLed.Seconds())
	}
	seconds := lasted.Seconds()
	fmt.Printf("| %s | %s | %d | %.2f s | %s | %d | %.0f | %.2f | %d | %.0f s |\n", name, led, r.moves, r.vacancy.Seconds(), r.reasons(), r.twice,
		float64(after.InMsgs-before.InMsgs+after.OutMsgs-before.OutMsgs)/seconds, float64(after.InBytes-before.InBytes+after.OutBytes-before.OutBytes)/seconds/1e6, f.plans()-plans, seconds)
	if *logs != "" && r.longest != "" {
		fmt.Fprintf(os.Stderr, "%s: the longest vacancy: %s\n", name, r.longest)
	}
	return err
}

// plans returns the number of the last plan.
func (f *fleet) plans() (n int) {
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	if e, err := f.bucket.Get(ctx, groupName+".plan"); err == nil {
		var plan struct{ Number int }
		_ = json.Unmarshal(e.Value(), &plan)
		n = plan.Number
	}
	return n
}

// result is what came of a phase.
type result struct {
	allLed  time.Duration  // after the begin of the phase, all keys were led for good
	moves   int            // terms of another member than the last of that key
	vacancy time.Duration  // the longest time that a key had no leader between two
	longest string         // that one, in words
	ended   map[string]int // how many terms ended, by reason
	twice   int            // terms that began while another member worked
}

// judge reads what happened. The events of one process are in order, those of several are sorted by the clock of this machine.
func judge(events []event, begun time.Time) (r result) {
	type state struct {
		by   map[string]bool
		last string
		free int64
	}
	cut := begun.UnixNano()
	r.ended = map[string]int{}
	sorted := slices.SortedStableFunc(slices.Values(events), func(a, b event) int { return cmp.Compare(a.At, b.At) })
	states, led := map[string]*state{}, 0
	for _, e := range sorted {
		if e.Key == "" {
			continue
		}
		s := states[e.Key]
		if s == nil {
			s = &state{by: map[string]bool{}}
			states[e.Key] = s
		}
		counts := e.At >= cut
		if e.Kind == "end" {
			if counts {
				r.ended[e.Text]++
			}
			if delete(s.by, e.Name); len(s.by) == 0 {
				s.free = e.At
				led--
			}
			continue
		}
		if counts && len(s.by) > 0 {
			r.twice++
		}
		if counts && s.last != "" {
			if s.last != e.Name {
				r.moves++
			}
			if len(s.by) == 0 {
				if vacancy := time.Duration(e.At - s.free); vacancy > r.vacancy {
					r.vacancy, r.longest = vacancy, fmt.Sprintf("%s of %s until %v, then of %s from %v", e.Key, s.last, time.Unix(0, s.free).UTC(), e.Name, time.Unix(0, e.At).UTC())
				}
			}
		}
		if len(s.by) == 0 {
			if led++; led == *keys && counts {
				r.allLed = time.Duration(e.At - cut)
			}
		}
		s.by[e.Name], s.last = true, e.Name
	}
	return r
}

// reasons returns why terms ended, in words.
func (r result) reasons() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(r.ended)) {
		all = append(all, fmt.Sprintf("%d %s", r.ended[reason], reason))
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// cpuTime returns what this process has used of its processors so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
