package witness

import "golang.org/x/sys/unix"

// reapFormerWitnesses does nothing: no witness exits here because the program replaced itself by exec.
func reapFormerWitnesses() {}

// replaceDescriptor gives a descriptor a second number, in the place of what that number was.
func replaceDescriptor(fd, number int) error { return unix.Dup2(fd, number) }
