package fence_test

import "syscall"

// There is nothing like these on Windows: tests that need them are skipped there.
const (
	stopSignal     = syscall.Signal(0)
	continueSignal = syscall.Signal(0)
)
