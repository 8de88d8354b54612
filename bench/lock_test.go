package bench

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

// locker is a lock as one of its users has it, over a connection of its own.
type locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// lockService makes users of one lock.
type lockService func() locker

// natsLocks makes users of a lock of this module.
func natsLocks(b *testing.B, s servers, replicas int) lockService {
	f := newFleet(b, s, handoverTTL, replicas)
	users := 0
	return func() locker {
		users++
		m, err := mutex.New("user-"+strconv.Itoa(users), "lock", f.bucket(f.connect()))
		if err != nil {
			b.Fatal(err)
		}
		return natsLock{m}
	}
}

type natsLock struct{ *mutex.Mutex }

func (l natsLock) Unlock(context.Context) error { return l.Mutex.Unlock() }

// etcdLocks makes users of a lock of etcd, each with a session of its own.
func etcdLocks(e *etcd) lockService {
	return func() locker {
		return concurrency.NewMutex(e.session(e.client(), int(handoverTTL/time.Second)), "/lock")
	}
}

// redisLocks makes users of a lock of redsync on a server in this process, which stores nothing on a disk.
func redisLocks(b *testing.B) lockService {
	s := miniredis.RunT(b)
	return func() locker {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		b.Cleanup(func() { _ = c.Close() })
		// The default gives up after 32 tries, 50 to 250 ms apart.
		return redisLock{redsync.New(goredis.NewPool(c)).NewMutex("lock", redsync.WithExpiry(handoverTTL), redsync.WithTries(10_000))}
	}
}

type redisLock struct{ *redsync.Mutex }

func (l redisLock) Lock(ctx context.Context) error { return l.LockContext(ctx) }

func (l redisLock) Unlock(ctx context.Context) error {
	_, err := l.UnlockContext(ctx)
	return err
}

// BenchmarkLock measures one lock and unlock that nobody contends for; the time from the call of Unlock to the return of a waiter's Lock;
// and the time in which 50 waiters have locked and unlocked it once each.
func BenchmarkLock(b *testing.B) {
	for _, s := range []struct {
		name  string
		locks func(b *testing.B) lockService
	}{
		{"nats-R1", func(b *testing.B) lockService { return natsLocks(b, natstest.StartTCP(b), 1) }},
		{"etcd-1", func(b *testing.B) lockService { return etcdLocks(startEtcd(b, 1, false)) }},
		{"etcd-1-nosync", func(b *testing.B) lockService { return etcdLocks(startEtcd(b, 1, true)) }},
		{"redsync", redisLocks},
	} {
		b.Run("uncontended/"+s.name, func(b *testing.B) { uncontended(b, s.locks(b)()) })
		b.Run("waiter/"+s.name, func(b *testing.B) { lockHandovers(b, s.locks(b)) })
		b.Run("50-waiters/"+s.name, func(b *testing.B) { servedWaiters(b, s.locks(b), 50) })
	}
}

func uncontended(b *testing.B, l locker) {
	ctx := context.Background()
	lock, unlock := func() { must(b, l.Lock(ctx)) }, func() { must(b, l.Unlock(ctx)) }
	lock() // the first lock of a key may take a stand-down
	unlock()
	var times sample
	for b.Loop() {
		began := time.Now()
		lock()
		unlock()
		times.add(time.Since(began), time.Millisecond)
	}
	times.report(b, "ms")
}

func lockHandovers(b *testing.B, locks lockService) {
	ctx := context.Background()
	holder, waiter := locks(), locks()
	must(b, holder.Lock(ctx))
	var times sample
	for b.Loop() {
		b.StopTimer()
		locked := make(chan time.Time)
		go func() {
			if err := waiter.Lock(ctx); err != nil {
				b.Error(err)
			}
			locked <- time.Now()
		}()
		time.Sleep(calm)
		b.StartTimer()
		began := time.Now()
		must(b, holder.Unlock(ctx))
		times.add((<-locked).Sub(began), time.Millisecond)
		holder, waiter = waiter, holder
	}
	must(b, holder.Unlock(ctx))
	times.report(b, "ms")
}

func servedWaiters(b *testing.B, locks lockService, n int) {
	ctx := context.Background()
	first := locks()
	waiters := make([]locker, n)
	for i := range waiters {
		waiters[i] = locks()
	}
	var times sample
	for b.Loop() {
		b.StopTimer()
		must(b, first.Lock(ctx))
		var served sync.WaitGroup
		for _, w := range waiters {
			served.Go(func() {
				if err := w.Lock(ctx); err != nil {
					b.Error(err)
				}
				if err := w.Unlock(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		time.Sleep(2 * calm)
		b.StartTimer()
		began := time.Now()
		must(b, first.Unlock(ctx))
		served.Wait()
		times.add(time.Since(began), time.Millisecond)
	}
	times.report(b, "ms")
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
