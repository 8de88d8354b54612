package witnesstest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ControlGroup makes a control group whose processes may have so much memory, and returns what adds a process. It skips the test where none can be
// made: that takes root, and a system that lets root do so.
func ControlGroup(t testing.TB, bytes int) (add func(pid int)) {
	t.Helper()
	name := "witness-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	folder, limit := filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes"
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		if folder, limit = filepath.Join("/sys/fs/cgroup", name), "memory.max"; !strings.Contains(string(controllers), "memory") {
			t.Skip("there is no controller of memory here")
		}
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Skip("no control group can be made here: ", err)
	}
	t.Cleanup(func() {
		for range 1000 { // until its last process is gone
			if os.Remove(folder) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("the control group is still in use: ", folder)
	})
	write := func(file, text string) error {
		return os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600)
	}
	if err := write(limit, strconv.Itoa(bytes)); err != nil {
		t.Skip("the memory of a control group cannot be limited here: ", err)
	}
	return func(pid int) {
		if err := write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			t.Fatal(err)
		}
	}
}
