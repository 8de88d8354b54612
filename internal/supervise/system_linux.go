package supervise

import (
	"bufio"
	"bytes"
	"errors"
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

// groupLives says whether any process of a group runs yet: one that is not a zombie, or of which that cannot be known.
func groupLives(group int) bool {
	if _, err := os.Stat("/proc/1"); err != nil {
		return true // the processes of other users are hidden
	}
	all, err := os.ReadDir("/proc")
	for _, entry := range all {
		pid, notOne := strconv.Atoi(entry.Name())
		if notOne != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has gone meanwhile
		}
		// From the state on, which follows the name: that is in brackets, and may hold any character.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) <= statThreads {
			return true
		}
		// A process whose first thread has ended is shown as a zombie too while other threads of it run.
		ended := (fields[0] == "Z" || fields[0] == "X") && fields[statThreads] <= "1"
		if fields[statGroup] == strconv.Itoa(group) && !ended {
			return true
		}
	}
	return err != nil
}

// Where the group and the number of threads are in /proc/<pid>/stat, counted from the state on.
const (
	statGroup   = 2
	statThreads = 17
)
