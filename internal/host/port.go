package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// The range lies below the ports that systems assign by themselves, so that none becomes the port of an outgoing connection
// while its server is down.
const (
	firstPort = 15_000
	lastPort  = 32_000
	portTries = 100

	dialTimeout = time.Second
)

// Port is a reserved TCP port of 127.0.0.1, on which nothing listens. No other caller, in this process or another, can reserve
// it until Release, or until the process ends. The reservation is the UDP port of the same number, which no server here needs.
type Port struct {
	Number int
	udp    net.PacketConn
}

// ReservePort reserves a port, for a server that keeps its port while it is down.
func ReservePort() (Port, error) { return reserve(firstPort, lastPort) }

func reserve(first, last int) (p Port, err error) {
	for range portTries {
		if p, err = reserveNumber(first + rand.IntN(last-first)); err == nil {
			return p, nil
		}
	}
	return Port{}, fmt.Errorf("no free port found between %d and %d: %w", first, last, err)
}

// reserveNumber reserves the port of that number.
func reserveNumber(number int) (Port, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		return Port{}, err
	}
	if PortInUse(number) {
		_ = udp.Close()
		return Port{}, fmt.Errorf("something listens on %s", address)
	}
	return Port{number, udp}, nil
}

// PortInUse reports whether something listens on that port of 127.0.0.1. It does not listen there to see whether it can: a process that another goroutine starts
// at that moment would listen there, too, until it runs its program, and keep the caller's server from listening.
func PortInUse(number int) bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)), dialTimeout)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Release ends the reservation.
func (p Port) Release() { _ = p.udp.Close() }
