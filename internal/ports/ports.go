// Package ports finds ports for servers that keep theirs while they are down.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that systems hand out by themselves, so that none of them becomes that of an
// outgoing connection while its server is down.
const (
	first = 15_000
	last  = 32_000
	tries = 100
)

// Port is a TCP port of 127.0.0.1 that nothing listens on and nobody else reserves, in this process or another. It stays
// so until it is released, or its process ends: the UDP port of that number is held meanwhile, which no server here needs.
type Port struct {
	Number int
	held   net.PacketConn
}

// Reserve reserves a port.
func Reserve() (Port, error) { return reserve(first, last) }

func reserve(first, last int) (p Port, err error) {
	for range tries {
		if p, err = hold(first + rand.IntN(last-first)); err == nil {
			return p, nil
		}
	}
	return Port{}, fmt.Errorf("no free port found between %d and %d: %w", first, last, err)
}

// hold reserves the port of that number.
func hold(number int) (Port, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
	held, err := net.ListenPacket("udp", address)
	if err != nil {
		return Port{}, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = held.Close()
		return Port{}, err
	}
	_ = l.Close()
	return Port{number, held}, nil
}

// Release gives the port up.
func (p Port) Release() { _ = p.held.Close() }
