package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NameProcess sets the name of this process in lists such as that of top.
func NameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// ExecutablePath returns a path of this very executable, even if its file was replaced after this process started.
func ExecutablePath() (string, error) { return "/proc/self/exe", nil }

// GroupRuns reports whether any process of a group still runs. A zombie does not; a process whose state is unknown does.
func GroupRuns(group int) bool {
	if _, err := os.Stat("/proc/1"); err != nil {
		return true // the system hides the processes of other users
	}
	all, err := os.ReadDir("/proc")
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // not a process
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the process has gone
		}
		// The state follows the name, which is in brackets and may contain any character.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) <= statThreads {
			return true
		}
		// The system also shows a process as a zombie if its first thread has ended while other threads run.
		zombie := (fields[0] == "Z" || fields[0] == "X") && fields[statThreads] <= "1"
		if fields[statGroup] == strconv.Itoa(group) && !zombie {
			return true
		}
	}
	return err != nil
}

// Positions of the group and of the number of threads in /proc/<pid>/stat, counted from the state.
const (
	statGroup   = 2
	statThreads = 17
)
