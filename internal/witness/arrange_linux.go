package witness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// reapFormerWitnesses reaps the witnesses that earlier images of this process have started, once they exit. A process that replaces itself by exec
// keeps its children, and nothing in the new image waits for them.
var reapFormerWitnesses = sync.OnceFunc(func() {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range lists {
		list, _ := os.ReadFile(path)
		for _, child := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(child); err == nil && isWitness(pid) {
				go func() { _, _ = unix.Wait4(pid, nil, 0, nil) }()
			}
		}
	}
})

// isWitness reports whether a child of this process is a witness: by its environment or, as it has none any more once it has exited, by its name and
// because it leads a session.
func isWitness(pid int) bool {
	environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if bytes.Contains(environment, []byte(roleVariable+"="+roleWitness)) {
		return true
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	rest, named := strings.CutPrefix(string(stat), fmt.Sprintf("%d (%s) ", pid, witnessName))
	fields := strings.Fields(rest) // state, parent, group, session
	return named && len(fields) > 3 && fields[3] == strconv.Itoa(pid)
}

// replaceDescriptor gives a descriptor a second number, in the place of what that number was.
func replaceDescriptor(fd, number int) error { return unix.Dup3(fd, number, 0) }
