package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has this process, and what it becomes by the calling thread, end with the thread that started it.
func endWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// programAttributes puts a program into a group of its own, in the foreground of the terminal if it is to have that, and
// has it end with this process; the system ties that to the thread that starts it.
func programAttributes(terminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: terminal, Ctty: syscall.Stdin, Pdeathsig: syscall.SIGKILL}
}

// ownPath is where this program can be executed, even if its file was replaced meanwhile.
func ownPath() (string, error) { return "/proc/self/exe", nil }

// minds says whether a process catches, blocks or ignores a signal, so that it does not end by it.
func minds(pid int, signal syscall.Signal) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // it is gone, or nothing can be known
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		what, mask, _ := strings.Cut(s.Text(), ":")
		switch what {
		case "SigBlk", "SigIgn", "SigCgt":
			bits, _ := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if bits&(1<<(signal-1)) != 0 {
				return true
			}
		}
	}
	return false
}
