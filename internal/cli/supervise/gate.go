//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/host"
)

// gateCommand names a process that waits at the gate: the process which will become the program, until its guardian knows of
// it. Only the gate covers the death of this process between the start of the program and the order to the guardian: processes that the program
// starts first would outlive this process.
const gateCommand = "run-gate"

// gateArgs is the number of arguments of a process at the gate before the program's own: this command's name, gateCommand, the numbers of
// two files, and the program's path. The first file delivers one byte when the process may execute the program, and ends without a byte if
// it may not. The second takes the error number in decimal if the program cannot be executed, and closes when the program is executed.
const gateArgs = 5

// startAtGate starts a process that waits at the gate and calls register with its number. When register returns nil, the
// process executes the program; startAtGate returns when it has, or the error. After an error the process is gone.
func startAtGate(cmd *exec.Cmd, register func(pid int) error) (err error) {
	path := cmd.Path
	if cmd.Path, err = host.ExecutablePath(); err != nil {
		return err
	}
	childGate, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = gate.Close() }()
	errno, childErrno, err := os.Pipe()
	if err != nil {
		_ = childGate.Close()
		return err
	}
	defer func() { _ = errno.Close() }()
	cmd.Args = append([]string{"election-cli", gateCommand, fileNumber(childGate), fileNumber(childErrno), path}, cmd.Args...)
	err = ownChildren.start(cmd, childGate, childErrno)
	_, _ = childGate.Close(), childErrno.Close()
	if err != nil {
		return err
	}
	if err = register(cmd.Process.Pid); err == nil {
		_, _ = gate.Write([]byte{0})
		err = awaitExec(errno, path)
	}
	if err != nil {
		_ = gate.Close()
		_ = ownChildren.wait(cmd)
	}
	return err
}

// awaitExec waits until the program at path is executed, or returns the error that the system reported.
func awaitExec(errno io.Reader, path string) error {
	text, err := io.ReadAll(errno)
	if number, _ := strconv.Atoi(string(text)); number != 0 {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.Errno(number)}
	}
	return err
}

// PassGate turns this process into the program that its arguments name, once the process that started it opens the gate. It
// exits if the gate stays shut. A process whose arguments are those of a guardian or of a deputy becomes that, and exits when it is
// done. PassGate returns at once if the arguments are those of any other process. Call it first in main.
func PassGate(args []string) {
	guardIfAsked(args)
	if len(args) <= gateArgs || args[1] != gateCommand {
		return
	}
	runtime.LockOSThread()
	dieWithParent()
	gate, errno := inheritedFile(args[2]), inheritedFile(args[3])
	if n, _ := gate.Read(make([]byte, 1)); n == 1 {
		env := handOverSockets(os.Environ(), os.Getppid(), os.Getpid())
		if number := syscall.Errno(0); errors.As(syscall.Exec(args[4], args[gateArgs:], env), &number) {
			_, _ = fmt.Fprint(errno, int(number))
		}
	}
	os.Exit(cli.ExitFailure)
}
