package supervise

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The requests that read and set the modes of a terminal.
const getModes, setModes = unix.TCGETS, unix.TCSETS

// dieWithParent asks the system to kill this process when the thread that started it ends. The request also holds for the program that the
// calling thread executes. Only this request kills the program if run, its guardian and the deputy are killed at one instant. It covers the
// program alone, and not what the program started.
func dieWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// programAttributes puts a program into a process group of its own, in the foreground of the terminal if it gets the terminal,
// and asks the system to kill the program when the thread that starts it ends. That request belongs to the first thread of the new process: it
// holds at the gate until dieWithParent repeats it for the thread that executes the program.
func programAttributes(hasTerminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: hasTerminal, Ctty: syscall.Stdin, Pdeathsig: syscall.SIGKILL}
}

// survives reports whether a process catches, blocks or ignores a signal, so that the signal does not end it.
func survives(pid int, signal syscall.Signal) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // the process is gone, or the system hides its state
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		field, mask, _ := strings.Cut(s.Text(), ":")
		switch field {
		case "SigBlk", "SigIgn", "SigCgt":
			bits, _ := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if bits&(1<<(signal-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// isStopped reports whether a process is stopped by a signal.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(state, []byte("T"))
}
